// Ranks that die, stop or hang, as the user of a run sees it: one line names the rank and its node, the others end, the
// last checkpoint is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <string>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using tests::text_of;

/// 2 nodes x 2 ranks that train until something happens, with a checkpoint after every second exchange.
std::vector<std::string> endless_run() {
  return prunex({"train", "--nodes",     "2",       "--ranks-per-node",   "2",    "--samples",
                 "160",   "--model",     "resnet8", "--precision",        "fp32", "--batch-size",
                 "8",     "--exchanges", "1000000", "--local-steps",      "1",    "--eval-every",
                 "0",     "--run-dir",   "run",     "--checkpoint-every", "2"});
}

class Faults : public testing::Test {
 protected:
  /// Starts the run, sends a signal to rank 3 and waits for the end.
  Result run_until(int signal) {
    Running training(scratch_.path(), endless_run());
    EXPECT_TRUE(training.wait_for("exchange 5/"));
    ranks_ = training.children();
    EXPECT_EQ(ranks_.size(), 4U);
    kill(ranks_.at(3), signal);
    return training.finish();
  }

  void expect_all_ended() const {
    for (const int pid : ranks_) EXPECT_NE(kill(pid, 0), 0) << pid;
  }

  /// The run goes on from a checkpoint, not from its start.
  void expect_resumable() const {
    Running training(scratch_.path(), prunex({"train", "--resume", "run"}));
    ASSERT_TRUE(training.wait_for("exchange "));
    kill(training.pid(), SIGTERM);
    const Result result = training.finish();
    std::smatch first;
    ASSERT_TRUE(std::regex_search(result.errors, first, std::regex("exchange ([0-9]+)/"))) << result.errors;
    EXPECT_GT(std::stoi(first[1]), 1) << result.errors;
  }

  const tests::Scratch scratch_;
  std::vector<int> ranks_;
};

TEST_F(Faults, AKilledRankEndsTheRun) {
  const Result result = run_until(SIGKILL);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(errors_of(result),
              ElementsAre("prunex: rank 3 was killed by signal 9 on node 1; ended the other 3 ranks"));
  expect_all_ended();
  expect_resumable();
}

TEST_F(Faults, AStoppedRankEndsTheRun) {
  const Result result = run_until(SIGSTOP);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      errors_of(result),
      ElementsAre(MatchesRegex("(\\[rank [12]\\] )?prunex: \\[comm\\] rank [012]: .* in (world|(node|rail) [01]): "
                               "lost rank 3 \\(node 1\\): silent for 5 s")));
  EXPECT_THAT(text_of(scratch_ / "run/hang-rank-0.txt"), HasSubstr("last 64 operations of rank 0 (node 0)"));
  expect_all_ended();
  expect_resumable();
}

TEST_F(Faults, ASignalMakesAllRanksWriteWhatTheyDo) {
  Running training(scratch_.path(), endless_run());
  ASSERT_TRUE(training.wait_for("exchange 1/"));
  kill(training.pid(), SIGUSR1);
  for (int rank = 0; rank < 4; ++rank) {
    const auto path = scratch_ / ("run/hang-rank-" + std::to_string(rank) + ".txt");
    for (int i = 0; i < 1000 && !std::filesystem::exists(path); ++i) usleep(10'000);
    EXPECT_THAT(text_of(path), HasSubstr("all_reduce #")) << path;
  }
  EXPECT_TRUE(training.wait_for("rank"));  // lags, or no rank waits for another: the run goes on meanwhile
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);
}

TEST_F(Faults, AreNotLookedForWithoutAHeartbeat) {
  auto words = endless_run();
  for (const char* word : {"--heartbeat-timeout", "0", "--exchanges", "3"}) words.push_back(word);
  EXPECT_EQ(run_program(scratch_.path(), words).status, 0);
  words.insert(words.end(), {"--heartbeat-timeout", "-1"});
  const Result refused = run_program(scratch_.path(), words);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--heartbeat-timeout"));
}

}  // namespace
}  // namespace prunex::cli
