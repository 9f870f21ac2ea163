// Ctrl-C and its like: a training ends after its next exchange, with a checkpoint and a line that says how to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using tests::text_of;

std::vector<std::string> run_of(int64_t exchanges, const std::vector<std::string>& more) {
  std::vector<std::string> words =
      prunex({"train", "--samples", "32", "--model", "resnet8", "--precision", "fp32", "--batch-size", "8",
              "--local-steps", "1", "--eval-every", "0", "--exchanges", std::to_string(exchanges), "--run-dir", "run"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

TEST(Interrupts, OfALaunchedRunLeaveACheckpointThatItGoesOnFrom) {
  const tests::Scratch scratch;
  Running training(scratch.path(), run_of(60, {"--nodes", "2", "--checkpoint-every", "1h"}));
  // the record has an exchange sooner than the launcher's standard error
  const auto made = [&] { return tests::lines_written(scratch / "run/metrics.jsonl"); };
  for (int i = 0; i < 12000 && made() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_GE(made(), 2);
  kill(training.pid(), SIGTERM);
  kill(training.pid(), SIGTERM);  // as `timeout` does; together they are one
  const Result result = training.finish();
  EXPECT_EQ(result.status, 128 + SIGTERM);
  EXPECT_THAT(last_line(result.errors), MatchesRegex("prunex: interrupted by signal 15 after exchange [0-9]+; prunex "
                                                     "train --resume run goes on after exchange [0-9]+"));
  const Result resumed = run(scratch.path(), {"train", "--resume", "run", "--quiet"});
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(text_of(scratch / "run/metrics.jsonl"), HasSubstr("\"exchange\":60"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/checkpoint"));
}

/// Who starts prunex may have ignored SIGCHLD, which lasts: the launcher hears of its ranks all the same.
TEST(Interrupts, ThatAParentIgnoredAreHeard) {
  const tests::Scratch scratch;
  std::vector<std::string> words = run_of(2, {"--nodes", "2"});
  words.insert(words.begin(), {"/usr/bin/env", "--ignore-signal=CHLD"});
  EXPECT_EQ(Running(scratch.path(), words).finish().status, 0);
}

TEST(Interrupts, OfARunWithoutCheckpointsEndItAtOnce) {
  const tests::Scratch scratch;
  Running training(scratch.path(), run_of(1'000'000, {"--checkpoint-every", "0"}));
  ASSERT_TRUE(training.wait_for("exchange 1/"));
  kill(training.pid(), SIGINT);
  EXPECT_EQ(training.finish().status, -SIGINT);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/checkpoint"));
}

}  // namespace
}  // namespace prunex::cli
