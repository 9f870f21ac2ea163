// Who notices what about whom. Ranks are processes where they are killed or stopped, threads elsewhere.
#include "prunex/comm/watch/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "prunex/comm/meet/socket.h"
#include "tests/file_store.h"
#include "tests/scratch.h"
#include "tests/stranger.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::message;

constexpr int kRanks = 4;
constexpr int kMostProcesses = 24;

// What the ranks report to the test, in memory that all of them share.
struct Findings {
  std::array<std::atomic<int>, kMostProcesses> dead;  // the rank found dead; -1: none so far
  std::array<std::atomic<int>, kMostProcesses> left;  // how many said goodbye
  std::array<char[64], kMostProcesses> reason;
  std::atomic<int> ready;
};

class Processes {
 public:
  Processes(const HeartbeatOptions& options, const std::function<void(int rank)>& body, int ranks = kRanks)
      : pids_(ranks) {
    void* memory = mmap(nullptr, sizeof(Findings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    findings_ = new (memory) Findings;
    for (auto& dead : findings_->dead) dead = -1;
    for (int rank = 0; rank < ranks; ++rank) pids_[rank] = start(rank, options, body);
    while (findings_->ready < ranks) std::this_thread::sleep_for(milliseconds(5));
  }
  ~Processes() {
    for (const int pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(findings_, sizeof(Findings));
  }

  void signal(int rank, int number) const { kill(pids_[rank], number); }
  void wait_for_death(int rank) const {
    while (findings_->dead[rank] < 0) std::this_thread::sleep_for(milliseconds(5));
  }
  const Findings& findings() const { return *findings_; }

 private:
  pid_t start(int rank, const HeartbeatOptions& options, const std::function<void(int)>& body) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    {
      tests::FileStore store(scratch_.path());
      const Heartbeat heartbeat({rank, static_cast<int>(pids_.size())}, store, options, events_of(rank));
      ++findings_->ready;
      body(rank);
    }
    _exit(0);
  }

  HeartbeatEvents events_of(int rank) {
    HeartbeatEvents events;
    events.died = [this, rank](int dead, const std::string& reason) {
      std::strncpy(findings_->reason[rank], reason.c_str(), sizeof(findings_->reason[rank]) - 1);
      findings_->dead[rank] = dead;
    };
    events.left = [this, rank](int, const std::string&) { ++findings_->left[rank]; };
    return events;
  }

  const tests::Scratch scratch_;
  Findings* findings_;
  std::vector<pid_t> pids_;
};

void sleep_on(int) {
  std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(Heartbeat, EverySurvivorNamesTheProcessThatWasKilled) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const Processes processes({}, sleep_on);
    processes.signal(victim, SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      processes.wait_for_death(rank);
      EXPECT_EQ(processes.findings().dead[rank], victim);
      EXPECT_STREQ(processes.findings().reason[rank], "its process ended");
    }
  }
}

TEST(Heartbeat, EverySurvivorNamesTheProcessThatIsStopped) {
  const Processes processes({.timeout = seconds(3)}, sleep_on);
  processes.signal(2, SIGSTOP);
  for (const int rank : {0, 1, 3}) {
    processes.wait_for_death(rank);
    EXPECT_EQ(processes.findings().dead[rank], 2);
    EXPECT_STREQ(processes.findings().reason[rank], "silent for 3 s");
  }
}

TEST(Heartbeat, InALargeRunThoseWhoWatchTellTheOthers) {
  const Processes processes({}, sleep_on, kMostProcesses);
  processes.signal(5, SIGSTOP);
  for (int rank = 0; rank < kMostProcesses; ++rank) {
    if (rank == 5) continue;
    processes.wait_for_death(rank);
    EXPECT_EQ(processes.findings().dead[rank], 5);
  }
}

TEST(Heartbeat, AProcessThatGoesOnAfterAStopLearnsThatItWasGivenUp) {
  const Processes processes({.timeout = seconds(3)}, sleep_on);
  processes.signal(2, SIGSTOP);
  processes.wait_for_death(0);
  processes.signal(2, SIGCONT);
  processes.wait_for_death(2);
  EXPECT_NE(processes.findings().dead[2], 2);
  EXPECT_THAT(processes.findings().reason[2], StartsWith("it gave this rank up, silent for 3 s"));
}

TEST(Heartbeat, AnOrderlyEndIsNoDeath) {
  const Processes processes({}, [](int rank) {
    if (rank == 1) return;
    sleep_on(rank);
  });
  for (const int rank : {0, 2, 3}) {
    while (processes.findings().left[rank] < 1) std::this_thread::sleep_for(milliseconds(5));
  }
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_THAT(std::vector<int>(processes.findings().dead.begin(), processes.findings().dead.end()), Each(-1));
}

/// For longer than two timeouts.
TEST(Heartbeat, BusyProcessorsAreNoDeath) {
  const Processes processes({.timeout = milliseconds(1500)}, [](int) {
    std::vector<std::thread> busy;
    for (int i = 0; i < 8; ++i) {
      busy.emplace_back([] {
        for (;;) asm volatile("");
      });
    }
    sleep_on(0);
  });
  std::this_thread::sleep_for(seconds(4));
  EXPECT_THAT(std::vector<int>(processes.findings().dead.begin(), processes.findings().dead.end()), Each(-1));
}

/// Runs body once per rank, each with a heartbeat and on its own thread.
void run(int ranks, const std::function<HeartbeatEvents(int)>& events,
         const std::function<void(int, Heartbeat&)>& body) {
  const auto store = make_memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Heartbeat heartbeat({rank, ranks}, *store, {.timeout = seconds(5)}, events(rank));
      body(rank, heartbeat);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Heartbeat, CarriesStatusAndNotesToAllOthers) {
  constexpr int kMany = 20;
  std::array<std::atomic<int>, kMany> statuses{}, notes{};
  const auto events = [&](int rank) {
    HeartbeatEvents events;
    events.status = [rank] { return "step " + std::to_string(rank); };
    events.heard = [&, rank](int from, const std::string& status) {
      EXPECT_EQ(status, "step " + std::to_string(from));
      ++statuses[rank];
    };
    events.told = [&, rank](int from, const std::string& note) {
      EXPECT_EQ(note, "from " + std::to_string(from));
      ++notes[rank];
    };
    events.died = [](int dead, const std::string& reason) { ADD_FAILURE() << dead << " " << reason; };
    return events;
  };
  std::atomic<int> done{0};
  run(kMany, events, [&](int rank, Heartbeat& heartbeat) {
    heartbeat.tell_all("from " + std::to_string(rank));
    while (notes[rank] < kMany - 1 || statuses[rank] < kMany - 1) std::this_thread::sleep_for(milliseconds(1));
    ++done;
    while (done < kMany) std::this_thread::sleep_for(milliseconds(1));
  });
  for (const auto& count : statuses) EXPECT_EQ(count, kMany - 1);  // once: it did not change
}

TEST(Heartbeat, TheGoodbyeCarriesTheLastStatus) {
  std::atomic<int> step{1};
  std::atomic<bool> gone{false};
  std::string last;
  const auto events = [&](int rank) {
    HeartbeatEvents events;
    events.status = [&, rank] { return rank == 1 ? std::to_string(step) : ""; };
    if (rank == 0) {
      events.left = [&](int, const std::string& status) {
        last = status;
        gone = true;
      };
    }
    return events;
  };
  run(2, events, [&](int rank, Heartbeat&) {
    if (rank == 1) step = 7;
    while (rank == 0 && !gone) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_EQ(last, "7");
}

TEST(Heartbeat, TurnsStrangersAway) {
  const auto store = make_memory_store();
  std::atomic<int> left{-1};
  std::thread first([&] {
    HeartbeatEvents events;
    events.left = [&](int from, const std::string&) { left = from; };
    const Heartbeat heartbeat({0, 2}, *store, {}, events);
    while (left < 0) std::this_thread::sleep_for(milliseconds(1));
  });
  std::string host;
  uint16_t port = 0;
  std::istringstream(*store->get("heartbeat/0", seconds(20))) >> host >> port;
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  const Socket stranger = connect_to({host, port}, deadline);
  EXPECT_TRUE(tests::send_all(stranger, "GET / HTTP/1.1\r\n\r\n", 18, deadline));
  { const Heartbeat second({1, 2}, *store, {}, {}); }
  first.join();
  EXPECT_EQ(left, 1);
}

TEST(Heartbeat, IsNotHeldUpByStrangersWhoAreSilent) {
  const auto store = make_memory_store();
  const HeartbeatOptions options = {.join_timeout = seconds(15)};
  std::thread first([&] { EXPECT_EQ(message([&] { Heartbeat({0, 2}, *store, options, {}); }), "no exception"); });
  std::string host;
  uint16_t port = 0;
  std::istringstream(*store->get("heartbeat/0", seconds(20))) >> host >> port;
  std::vector<Socket> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(connect_to({host, port}, std::chrono::steady_clock::now() + seconds(20)));
  }
  EXPECT_EQ(message([&] { Heartbeat({1, 2}, *store, options, {}); }), "no exception");
  first.join();
}

TEST(Heartbeat, NamesTheRankWhoseCardSaysNoPlace) {
  for (const std::string card : {"", "nowhere", "127.0.0.1 99999999 1", "127.0.0.1 80"}) {
    const auto store = make_memory_store();
    store->set("heartbeat/0", card);
    EXPECT_THAT(message([&] {
                  Heartbeat({1, 2}, *store, {}, {});
                }),
                HasSubstr("heartbeat: rank 0 left a card that is none"));
  }
}

TEST(Heartbeat, NamesTheRankThatDoesNotCome) {
  const auto store = make_memory_store();
  const auto join = [&](int rank) {
    return message([&] { const Heartbeat heartbeat({rank, 3}, *store, {.join_timeout = seconds(1)}, {}); });
  };
  std::thread other([&] { EXPECT_THAT(join(0), HasSubstr("rank 1 did not connect within 1 s")); });
  EXPECT_TRUE(store->get("heartbeat/0", seconds(20)));
  EXPECT_THAT(join(2), HasSubstr("rank 1 did not come within 1 s"));
  other.join();
}

}  // namespace
}  // namespace prunex::comm
