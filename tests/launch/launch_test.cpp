// The launcher, as a user sees it: exit status, lines on standard error, processes left behind.
#include "launch/launch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "launch/error_lines.h"
#include "launch/stop_signals.h"
#include "prunex/comm/meet/socket.h"

namespace prunex::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// The driver, running, with its output in a pipe.
class Driver {
 public:
  /// `terminal`: of the user's, which hang_up() ends.
  explicit Driver(const char* behaviour, bool terminal = false) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    if (terminal) {
      terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      EXPECT_TRUE(grantpt(terminal_) == 0 && unlockpt(terminal_) == 0);
    }
    pid_ = fork();
    if (pid_ == 0) {
      if (terminal) {
        setsid();
        open(ptsname(terminal_), O_RDWR);  // becomes that of the session
      }
      std::signal(SIGINT, SIG_IGN);  // as shells start background jobs
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      execl(PRUNEX_LAUNCH_DRIVER, PRUNEX_LAUNCH_DRIVER, behaviour, nullptr);
      _exit(126);
    }
    close(ends[1]);
    output_fd_ = ends[0];
  }
  ~Driver() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_fd_);
  }

  void hang_up() const { close(terminal_); }
  void signal(int number) const { kill(pid_, number); }

  // Reads until all four ranks have reported their process ids, or for half a minute.
  std::vector<pid_t> wait_for_ranks() {
    const auto deadline = std::chrono::steady_clock::now() + seconds(30);
    while (rank_pids().size() < 4 && comm::wait_for(output_fd_, POLLIN, deadline) && read_some()) {
    }
    return rank_pids();
  }

  // Reads to the end, which comes when the driver and all of its ranks have ended; returns the exit status.
  int finish() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Without the lines that only report process ids.
  std::string output() const { return std::regex_replace(output_, kPidLine, ""); }

 private:
  bool read_some() {
    std::array<char, 4096> buffer;
    const auto count = read(output_fd_, buffer.data(), buffer.size());
    if (count > 0) output_.append(buffer.data(), count);
    return count > 0;
  }

  std::vector<pid_t> rank_pids() const {
    std::vector<pid_t> pids;
    for (std::sregex_iterator match(output_.begin(), output_.end(), kPidLine), end; match != end; ++match) {
      pids.push_back(std::stoi((*match)[2]));
    }
    return pids;
  }

  const std::regex kPidLine{"(\\[rank \\d\\] )?rank \\d has pid (\\d+)\n"};
  pid_t pid_;  // 0 once it has ended
  int output_fd_;
  int terminal_ = -1;
  std::string output_;
};

// One that has ended may stay as a zombie, where the first process of a container asks for no orphan's status.
bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // "42 (name) S …"
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z';
}

// What the driver, left alone, ends with.
void expect_ends(const char* behaviour, int status, const testing::Matcher<const std::string&>& output) {
  Driver driver(behaviour);
  EXPECT_EQ(driver.finish(), status);
  EXPECT_THAT(driver.output(), output);
}

TEST(Launch, RunsAllRanksAndReturnsTheirStatus) {
  expect_ends("sum", 0, "sum 6 threads 3\n");  // 0 + 1 + 2 + 3; the driver asks for three threads
}

TEST(Launch, ShowsTheErrorOfTheRankThatFailedAndNotItsConsequences) {
  expect_ends("throw", 1, "[rank 3] driver: out of paper\n");
}

TEST(Launch, ARankThatFailsBeforeItJoinsEndsThoseWhoWaitForIt) {
  expect_ends("never join", 1, "[rank 3] driver: no such disk\n");
}

TEST(Launch, ShowsAnErrorThatAllRanksReportOnce) {
  expect_ends("all throw", 1, MatchesRegex("[^\n]*driver: no such folder\n"));
}

TEST(Launch, NamesARankThatFailedWithoutAWord) {
  expect_ends("exit silently", 7, "prunex: rank 3 failed with status 7 on node 1; ended the other 3 ranks\n");
}

TEST(Launch, AKilledRankEndsTheRunWithOneLine) {
  expect_ends("kill", 1, "prunex: rank 3 was killed by signal 9 on node 1; ended the other 3 ranks\n");
}

TEST(Launch, KillsRanksThatIgnoreTheRequestToEnd) {
  Driver driver("deaf");
  const auto pids = driver.wait_for_ranks();
  EXPECT_EQ(driver.finish(), 1);
  EXPECT_THAT(driver.output(), StartsWith("prunex: rank 3 was killed by signal 9"));
  for (const pid_t pid : pids) EXPECT_FALSE(alive(pid));
}

TEST(Launch, PassesInterruptsOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Driver driver("run");
    const auto pids = driver.wait_for_ranks();
    ASSERT_EQ(pids.size(), 4);
    driver.signal(signal);
    EXPECT_EQ(driver.finish(), 128 + signal);
    EXPECT_EQ(driver.output(), "prunex: interrupted by signal " + std::to_string(signal) + "; ended 4 ranks\n");
    for (const pid_t pid : pids) EXPECT_FALSE(alive(pid));
  }
}

TEST(Launch, PassesOnThatTheTerminalHasGone) {
  Driver driver("run", true);
  const auto pids = driver.wait_for_ranks();
  ASSERT_EQ(pids.size(), 4);
  driver.hang_up();
  EXPECT_EQ(driver.finish(), 128 + SIGHUP);
  for (const pid_t pid : pids) EXPECT_FALSE(alive(pid));
}

TEST(Launch, ASecondSignalKillsRanksThatDoNotEnd) {
  Driver driver("stubborn");
  const auto pids = driver.wait_for_ranks();
  ASSERT_EQ(pids.size(), 4);
  driver.signal(SIGTERM);
  driver.signal(SIGTERM);  // with the first, it is one
  std::this_thread::sleep_for(kOneSignal + seconds(2));
  for (const pid_t pid : pids) EXPECT_TRUE(alive(pid));
  driver.signal(SIGTERM);
  EXPECT_EQ(driver.finish(), 128 + SIGTERM);
  EXPECT_EQ(driver.output(), "prunex: interrupted by signal 15; ended 4 ranks\n");
}

TEST(Launch, ReturnsTheStatusOfRanksThatEndedOnRequest) {
  expect_ends("end on request", 128 + SIGINT, HasSubstr("goes on\n"));
}

TEST(Launch, ANodeThatLeavesAnElasticRunEndsNeitherTheOthersNorTheirResult) {
  expect_ends("a node leaves", 0, HasSubstr("done\n"));
}

/// It knows how many ranks of this machine had GPUs before its own.
TEST(Launch, ANodeThatComesBackIsARunOfItsOwn) {
  expect_ends("elastic, a node comes back", 0,
              AllOf(HasSubstr("rank 0 of 2 after 2\n"), HasSubstr("rank 1 of 2 after 2\n")));
}

TEST(Launch, ARunThatEndsOnRequestAfterALossSaysNothingOfIt) {
  expect_ends("elastic, ends after a loss", 128 + SIGINT, Not(HasSubstr("none is left")));
}

TEST(Launch, ANodeThatCannotBeStartedAgainEndsNoOther) {
  expect_ends("elastic, a node comes back in vain", 0,
              AllOf(HasSubstr("prunex: node 1 cannot be started again: "), HasSubstr("it stays away\n")));
}

TEST(Launch, AnElasticRunThatHasNotBegunEndsWithARankThatFails) {
  expect_ends("elastic, never join", 1, "[rank 3] driver: no such disk\n");
}

TEST(Launch, AnElasticRunOfWhichNoNodeIsLeftTellsWhyTheLastOneFailed) {
  expect_ends("elastic, all nodes fail", 1, "[rank 3] driver: out of paper\n");
}

TEST(Launch, AnInterruptWhileRanksAreStartedEndsTheStart) {
  expect_ends("interrupted", 128 + SIGTERM, "prunex: interrupted by signal 15; ended 1 rank\n");
}

TEST(Launch, LeavesNoOrphanWhenItIsKilled) {
  Driver driver("run");
  const auto pids = driver.wait_for_ranks();
  ASSERT_EQ(pids.size(), 4);
  driver.signal(SIGKILL);
  EXPECT_EQ(driver.finish(), -SIGKILL);  // the pipe's end: nobody is left to write to it
  for (const pid_t pid : pids) {
    for (int i = 0; i < 200 && alive(pid); ++i) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_FALSE(alive(pid));
  }
}

TEST(ErrorLines, AreMessagesBehindTheirRankAndTheCommand) {
  EXPECT_EQ(message_of("[rank 12] prunex: --lr: got 0"), "--lr: got 0");
  EXPECT_EQ(message_of("prunex: warning: slow"), "warning: slow");
  EXPECT_EQ(message_of("[rank 1"), "[rank 1");
  EXPECT_EQ(message_of("prunex"), "prunex");
}

TEST(ErrorLines, DropWhatOthersWriteOnceOneIsKept) {
  ErrorLines lines;
  const auto now = ErrorLines::Clock::now();
  lines.add(2, "first\nhal", now);
  lines.add(1, "other\n", now);
  lines.add(2, "f\n", now);
  lines.keep_only(2);
  lines.add(1, "later\n", now);
  ::testing::internal::CaptureStderr();
  lines.show_due(now);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  lines.show_due(now + ErrorLines::kDelay);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[rank 2] first\n[rank 2] half\n");
  EXPECT_TRUE(lines.wrote(1));
}

TEST(ErrorLines, ShowWhatSeveralRanksWriteOnceUnlessLongAfter) {
  ErrorLines lines;
  const auto now = ErrorLines::Clock::now();
  lines.add(1, "waits\n", now);
  lines.add(2, "waits\n", now + std::chrono::seconds(1));
  lines.add(3, "waits\n", now + std::chrono::minutes(1));
  ::testing::internal::CaptureStderr();
  lines.show_due(now + std::chrono::hours(1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[rank 1] waits\n[rank 3] waits\n");
}

TEST(ErrorLines, HoldReportsOfALossToTheEnd) {
  ErrorLines lines;
  const auto now = ErrorLines::Clock::now();
  lines.add(1, "lost rank 2\n", now);
  lines.add(2, "no memory\n", now);
  ::testing::internal::CaptureStderr();
  lines.show_due(now + std::chrono::hours(1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[rank 2] no memory\n");
  EXPECT_TRUE(lines.reported_loss(1));
  EXPECT_FALSE(lines.reported_loss(2));
}

}  // namespace
}  // namespace prunex::launch
