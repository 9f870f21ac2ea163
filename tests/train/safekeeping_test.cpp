// Runs that are interrupted, or whose disk is full: what is kept, and that what goes on equals what was never
// disturbed.
#include "prunex/train/run/safekeeping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "prunex/train/trainer.h"
#include "tests/full_disk.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;
using tests::text_of;

namespace fs = std::filesystem;

TrainOptions resumed(TrainOptions options) {
  options.resume = options.run_dir;
  options.run_dir.clear();
  return options;
}

void expect_equal(const std::string& part, const std::string& whole) {
  EXPECT_EQ(text_of(part + "/model.safetensors"), text_of(whole + "/model.safetensors"));
  EXPECT_EQ(lines_without_seconds(part), lines_without_seconds(whole));
}

/// Runs until rank 1 is asked to stop, which is as soon as it hears. The signal that each rank ended with.
std::vector<int> run_until_asked(const TrainOptions& options, int signal) {
  std::vector<int> ended(2);
  comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) {
    StopRequest stop;
    std::thread asking([&] {
      while (ranks.layout.rank == 1 && !stop.ask(signal)) std::this_thread::yield();
    });
    try {
      train(options, ranks, kConfig, &stop);
    } catch (const Interrupted& end) {
      ended[ranks.layout.rank] = end.signal;
      EXPECT_THAT(end.what(),
                  AllOf(StartsWith("interrupted by signal " + std::to_string(signal) + " after exchange "),
                        HasSubstr("; prunex train `resume` " + options.run_dir + " goes on after exchange ")));
    }
    asking.join();
  });
  return ended;
}

TEST(Safekeeping, ARunThatOneRankIsAskedToStopEndsOnAllAndGoesOnToTheSameBits) {
  const tests::Scratch scratch;
  const TrainOptions whole = two_node_run(scratch / "whole"), part = two_node_run(scratch / "part");
  run_to_end(whole);
  EXPECT_EQ(run_until_asked(part, SIGINT), (std::vector<int>{SIGINT, SIGINT}));
  EXPECT_LT(lines_of(scratch / "part").size(), 6U);
  EXPECT_FALSE(fs::exists(scratch / "part/summary.json"));
  run_to_end(resumed(part));
  expect_equal(scratch / "part", scratch / "whole");
  EXPECT_FALSE(fs::exists(scratch / "part/checkpoint"));  // nobody asked for these
  EXPECT_THAT([&] { run_to_end(resumed(part)); }, ThrowsMessage<std::invalid_argument>(HasSubstr("is finished")));
}

TEST(Safekeeping, WithoutCheckpointsThereIsNothingToWaitFor) {
  StopRequest stop;
  EXPECT_FALSE(stop.ask(SIGTERM));
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(80, 1);
  options.run_dir = scratch / "run";
  options.checkpoint_every = 0;
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) { train(options, ranks, kConfig, &stop); });
  EXPECT_FALSE(stop.ask(SIGTERM));
}

TEST(Safekeeping, WritesCheckpointsByTheClockUnlessToldOtherwise) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.trace = true;
  options.checkpoint_seconds = 1e-6;
  run_to_end(options);
  const json trace = json::parse(text_of(scratch / "run/trace.json"));
  std::map<int, int> checkpoints;  // by rank
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "checkpoint") ++checkpoints[event["tid"].get<int>()];
  }
  EXPECT_GE(checkpoints[0], 2);  // one after the last exchange
  EXPECT_EQ(checkpoints[0], checkpoints[1]);
  EXPECT_FALSE(fs::exists(scratch / "run/checkpoint"));
}

TEST(Safekeeping, AFullDiskCostsCheckpointsAndNotTheTraining) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.checkpoint_every = 2;
  testing::internal::CaptureStderr();
  {
    const tests::FullDisk disk(30'000);  // for metrics, not for weights
    EXPECT_THAT([&] { run_to_end(options); },
                ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("cannot write"), HasSubstr("run/model"))));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("prunex: warning: no checkpoint of exchange 2: cannot write " + options.run_dir));
  EXPECT_THAT(said, HasSubstr("there is none before\n"));
  EXPECT_EQ(lines_of(scratch / "run").size(), 6U);
}

TEST(Safekeeping, AProductThatCannotBeWrittenIsMadeByGoingOn) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.checkpoint_every = 3;
  run_to_end(options);
  fs::copy(scratch / "run", scratch / "whole", fs::copy_options::recursive);
  fs::remove(scratch / "run/model.safetensors");
  fs::create_directories(scratch / "run/model.safetensors/in the way");
  EXPECT_THAT([&] { run_to_end(resumed(options)); },
              ThrowsMessage<std::runtime_error>(
                  EndsWith("; prunex train `resume` " + options.run_dir + " goes on after exchange 6")));
  fs::remove_all(scratch / "run/model.safetensors");
  run_to_end(resumed(options));
  expect_equal(scratch / "run", scratch / "whole");
  EXPECT_TRUE(fs::exists(scratch / "run/checkpoint/6"));  // which were asked for
}

// Shorter than the time between checkpoints.
TEST(Safekeeping, SoIsThatOfAShortRun) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.exchanges = 60;
  std::thread obstacle([&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!fs::exists(scratch / "run/config.toml") && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    fs::create_directories(scratch / "run/model.safetensors/in the way");
  });
  EXPECT_THAT([&] { run_to_end(options); }, ThrowsMessage<std::runtime_error>(EndsWith(" goes on after exchange 60")));
  obstacle.join();
  fs::remove_all(scratch / "run/model.safetensors");
  run_to_end(resumed(options));
  EXPECT_TRUE(fs::exists(scratch / "run/summary.json"));
  EXPECT_FALSE(fs::exists(scratch / "run/checkpoint"));
}

/// It does as soon as masks have their final share, in exchange 3: the tolerance is that large.
TEST(Safekeeping, ARunThatHasConvergedTrainsNoFurther) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.consensus.tolerance = 1e9;
  options.checkpoint_every = 1;
  const Summary summary = run_to_end(options);
  EXPECT_EQ(summary.exchanges, 3);
  EXPECT_TRUE(summary.converged);
  EXPECT_TRUE(lines_of(scratch / "run").back().contains("accuracy"));
  fs::copy(scratch / "run", scratch / "whole", fs::copy_options::recursive);
  fs::remove(scratch / "run/model.safetensors");
  run_to_end(resumed(options));
  expect_equal(scratch / "run", scratch / "whole");
}

TEST(Safekeeping, FilesThatAKilledRunLeftUnderConstructionAreRemoved) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  fs::create_directories(scratch / "run");
  std::ofstream(scratch / "run/config.toml.123-0123abcd.tmp") << "ha";
  options.checkpoint_every = 6;
  run_to_end(options);
  EXPECT_FALSE(fs::exists(scratch / "run/config.toml.123-0123abcd.tmp"));
  std::ofstream(scratch / "run/model.pt2.123-0123abcd.tmp") << "half";
  run_to_end(resumed(options));
  EXPECT_FALSE(fs::exists(scratch / "run/model.pt2.123-0123abcd.tmp"));
}

}  // namespace
}  // namespace prunex::train
