// prunex compare and prunex report on tiny runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/cli/compare_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;
using tests::Scratch;

/// One run, "a", of so many exchanges.
std::string one_run(int exchanges) {
  return kCommon + "[[run]]\nname = \"a\"\nexchanges = " + std::to_string(exchanges) + "\n";
}

/// Until `seen`; a comparison that ends before is a failure.
void wait_until(const Scratch& scratch, const std::function<bool()>& seen) {
  while (!seen()) {
    const bool over = fs::exists(scratch / "out/report.html");  // written when all runs have ended
    ASSERT_FALSE(over);
    usleep(20000);
  }
}

TEST(Compare, SurvivesAFailingRunAndSkipsWhatIsDone) {
  const Scratch scratch;
  write(scratch / "c.toml", "seeds = [0, 1]\n" + kCommon + R"(
[[run]]
name = "broken"
exchanges = 2
lr = 1e20
[[run]]
name = "whole"
exchanges = 2
)");
  const auto first = compare(scratch);
  EXPECT_EQ(first.status, 1);
  EXPECT_THAT(first.errors, HasSubstr("2 runs failed"));
  ASSERT_TRUE(fs::exists(scratch / "out/report.html"));
  const auto written_record = record(scratch);
  for (const auto& entry : written_record.at("runs")) {
    const bool broken = entry.at("name") == "broken";
    EXPECT_EQ(entry.at("state"), broken ? "failed" : "done");
    if (broken) {
      EXPECT_THAT(entry.at("error").get<std::string>(),
                  testing::AllOf(testing::Ne(""), testing::Not(HasSubstr("prunex: "))));
    } else {
      EXPECT_EQ(entry.at("summary").at("exchanges"), 2);
    }
  }
  const auto written = fs::last_write_time(scratch / "out/whole/0/summary.json");
  EXPECT_EQ(compare(scratch, {"--only", "whole"}).status, 0);
  EXPECT_EQ(fs::last_write_time(scratch / "out/whole/0/summary.json"), written);
}

/// The one whose other run fails, too.
TEST(Compare, NetworksMayHaveTheWidthsThatAnotherRunLeft) {
  const Scratch scratch;
  const std::string pruned = "strategy = \"diloco\"\ngroups = \"coupled-inner\"\nprune-end = 1\nprune-start = 1\n";
  write(scratch / "c.toml", kTiny + R"(exchanges = 3
[[run]]
name = "cut"
)" + pruned + "[[run]]\nname = \"broken\"\nlr = 1e20\n" +
                                pruned + R"([[run]]
name = "small-of-broken"
strategy = "ddp"
widths-of = "broken"
[[run]]
name = "small"
strategy = "ddp"
widths-of = "cut"
)");
  const auto result = compare(scratch, {"--jobs", "2"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("broken/0 has no structure.json for widths-of"));
  const auto entries = record(scratch).at("runs");
  ASSERT_EQ(entries.size(), 4U);
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& entry : entries) by_name[entry.at("name")] = entry;
  EXPECT_EQ(by_name["small"].at("summary").at("parameters_compact"),
            by_name["cut"].at("summary").at("parameters_compact"));
  EXPECT_LT(by_name["small"].at("summary").at("parameters_compact"), 78042);
  EXPECT_EQ(by_name["small"].at("options").at("widths-of"), "cut");
  EXPECT_EQ(by_name["small-of-broken"].at("state"), "failed");
  EXPECT_EQ(compare(scratch, {"--only", "small"}).status, 0);
}

TEST(Compare, CtrlCEndsTheChildAndTheSameCommandGoesOn) {
  const Scratch scratch;
  write(scratch / "c.toml", kCommon + R"(
checkpoint-every = 1
eval-every = 0
[[run]]
name = "long"
exchanges = 60
)");
  Running running(scratch.path(), prunex({"compare", "c.toml", "--output", "out", "--dirty"}));
  ASSERT_NO_FATAL_FAILURE(wait_until(scratch, [&] {
    return fs::exists(scratch / "out/long/0/checkpoint") && !fs::is_empty(scratch / "out/long/0/checkpoint");
  }));
  ::kill(running.pid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(running.pid(), SIGTERM);  // with the first, it is one
  const auto stopped = running.finish();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_THAT(stopped.errors, HasSubstr("the same command goes on"));
  EXPECT_EQ(record(scratch).at("runs").at(0).at("state"), "waiting");
  const auto again = compare(scratch);
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.errors, HasSubstr("long seed 0 goes on"));
  EXPECT_EQ(record(scratch).at("runs").at(0).at("summary").at("exchanges"), 60);
}

std::string run_with_pilots(const std::string& rates) {
  return kCommon + "[pilot]\nvalidation = 40\nexchanges = 2\n[[run]]\nname = \"tuned\"\nexchanges = 3\nrates = [" +
         rates + "]\n";
}

TEST(Compare, PilotsChooseTheRate) {
  const Scratch scratch;
  write(scratch / "c.toml", run_with_pilots("0.05, 1e-9"));
  const auto result = compare(scratch, {"--jobs", "2"});
  ASSERT_EQ(result.status, 0) << result.errors;
  double best = -1;
  std::string rate;
  const auto written = record(scratch);
  for (const auto& pilot : written.at("pilots")) {
    const double accuracy = pilot.at("summary").at("validation_accuracy");
    if (accuracy > best) rate = fmt::format("{}", pilot.at("rate").get<double>());
    best = std::max(best, accuracy);
  }
  EXPECT_EQ(written.at("runs").at(0).at("options").at("lr"), rate);
}

/// At 1e30 the loss is no number after a step.
TEST(Compare, APilotThatDivergesIsNoFailureWhereAnotherHasChosen) {
  const Scratch scratch;
  write(scratch / "c.toml", run_with_pilots("0.05, 1e30"));
  const auto first = compare(scratch);
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.errors, HasSubstr("failed: "));
  EXPECT_EQ(record(scratch).at("runs").at(0).at("options").at("lr"), "0.05");
  const auto second = compare(scratch);
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_THAT(second.errors, testing::Not(HasSubstr("failed: ")));  // nor is it tried again
}

TEST(Compare, WarnsOfRunsThatTheFileHasNoMoreAndForgetsThemWhenAsked) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1) + "[[run]]\nname = \"b\"\nexchanges = 2\n");
  ASSERT_EQ(compare(scratch).status, 0);
  write(scratch / "c.toml", one_run(1));
  const auto kept = compare(scratch);
  EXPECT_EQ(kept.status, 0);
  EXPECT_THAT(kept.errors, HasSubstr("warning: compare: 1 run in out that c.toml does not list: b/0;"));
  EXPECT_EQ(record(scratch).at("runs").size(), 2U);
  const auto forgotten = compare(scratch, {"--again", "b"});
  EXPECT_EQ(forgotten.status, 0) << forgotten.errors;
  EXPECT_THAT(forgotten.errors, testing::Not(HasSubstr("warning")));
  EXPECT_EQ(record(scratch).at("runs").size(), 1U);
  EXPECT_FALSE(fs::exists(scratch / "out/b"));
}

TEST(Compare, TimesTheFirstSeedOfEveryRunAlone) {
  const Scratch scratch;
  write(scratch / "c.toml", "seeds = [3, 4]\n" + one_run(2));
  const auto result = compare(scratch, {"--time-exchanges", "3", "--time-load", "1"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("a timing starts"));
  const auto written = record(scratch);
  EXPECT_THAT(written.at("runs"), testing::SizeIs(2));
  ASSERT_THAT(written.at("timings"), testing::SizeIs(1));
  const auto& timing = written.at("timings").at(0);
  EXPECT_EQ(timing.at("seed"), 3);
  EXPECT_EQ(timing.at("exchanges").at("count"), 3);
  EXPECT_GT(timing.at("exchanges").at("local").at(0), 0);
  EXPECT_THAT(std::string(timing.at("sitting")), testing::EndsWith(" UTC"));
  const auto timed = fs::last_write_time(scratch / "out/a/timing/summary.json");
  ASSERT_EQ(compare(scratch, {"--time-exchanges", "3", "--time-load", "1"}).status, 0);
  EXPECT_EQ(fs::last_write_time(scratch / "out/a/timing/summary.json"), timed);
  ASSERT_EQ(compare(scratch, {"--time-exchanges", "2", "--time-load", "1"}).status, 0);
  EXPECT_EQ(record(scratch).at("timings").at(0).at("exchanges").at("count"), 2);
}

/// A cluster without a network; the command is what comes after "--".
std::string no_cluster(const Scratch& scratch, const std::string& then) {
  const std::string path = scratch / "cluster.sh";
  write(path, "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\n" + then + "\n");
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

TEST(Compare, VerifyPutsComputedNextToMeasuredSeconds) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(3) + "warmup-epochs = 0.5\n");  // longer than two exchanges
  const auto cluster = no_cluster(scratch, "exec \"$@\"");
  const auto result = compare(scratch, {"--verify", "25,100", "--verify-exchanges", "2", "--cluster", cluster});
  ASSERT_EQ(result.status, 0) << result.errors;
  std::ifstream file(scratch / "out/verify.json");
  const auto points = nlohmann::json::parse(file);
  ASSERT_THAT(points, testing::SizeIs(2));
  for (const auto& point : points) {
    EXPECT_GT(point.at("computed_seconds"), 0);
    EXPECT_GT(point.at("measured_seconds"), 0);
    EXPECT_EQ(point.at("error"), "");
  }
  EXPECT_THAT(result.output, HasSubstr("measured s"));
  ASSERT_EQ(compare(scratch, {"--verify", "400", "--verify-exchanges", "2", "--cluster", cluster}).status, 0);
  std::ifstream more(scratch / "out/verify.json");
  EXPECT_THAT(nlohmann::json::parse(more), testing::SizeIs(3));  // the two from before are kept
  EXPECT_THAT(tests::text_of(scratch / "out/report.html"), HasSubstr("400"));
}

TEST(Compare, VerifyLeavesOutWhatNoLinkCarries) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1) + "[[run]]\nname = \"alone\"\nnodes = 1\n");
  const auto cluster = no_cluster(scratch, "exec \"$@\"");
  const auto result = compare(scratch, {"--verify", "25", "--cluster", cluster});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("verify: alone seed 0 is left out: it has one node, which sends nothing"));
  EXPECT_THAT(nlohmann::json::parse(tests::text_of(scratch / "out/verify.json")), testing::SizeIs(1));
}

TEST(Compare, AClusterScriptThatIsNotThereIsRefusedBeforeAnythingRuns) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  const auto refused = compare(scratch, {"--verify", "25", "--cluster", "nowhere.sh"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--cluster: got 'nowhere.sh'"));
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(Compare, AVerificationThatFailsIsNoSuccess) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  const auto cluster = no_cluster(scratch, "echo 'no such link' >&2; exit 3");
  const auto result = compare(scratch, {"--verify", "25", "--cluster", cluster});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("no such link"));
  EXPECT_THAT(result.errors, HasSubstr("1 point failed"));
  const auto silent = compare(scratch, {"--verify", "25", "--cluster", no_cluster(scratch, "exit 0")});
  EXPECT_EQ(silent.status, 1);
  EXPECT_THAT(silent.output, HasSubstr("it left no summary.json"));
}

TEST(Compare, AVerificationThatFailsLeavesOneThatDidNot) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  ASSERT_EQ(compare(scratch, {"--verify", "25", "--cluster", no_cluster(scratch, "exec \"$@\"")}).status, 0);
  const std::string points = tests::text_of(scratch / "out/verify.json");
  EXPECT_EQ(compare(scratch, {"--verify", "25", "--cluster", no_cluster(scratch, "exit 3")}).status, 1);
  EXPECT_EQ(tests::text_of(scratch / "out/verify.json"), points);
}

TEST(Compare, OptionsThatChangedAreRefusedBeforeAnythingRuns) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  ASSERT_EQ(compare(scratch).status, 0);
  write(scratch / "c.toml", one_run(2));
  const auto refused = compare(scratch);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("out/a/0 was made with other options"));
}

TEST(Compare, AgainMakesRunsAnew) {
  const Scratch scratch;
  const auto file = [](int exchanges) { return one_run(exchanges) + "[[run]]\nname = \"b\"\nexchanges = 1\n"; };
  write(scratch / "c.toml", file(1));
  ASSERT_EQ(compare(scratch).status, 0);
  const auto of_b = fs::last_write_time(scratch / "out/b/0/summary.json");
  write(scratch / "c.toml", file(2));
  EXPECT_EQ(compare(scratch, {"--again", "nothing"}).status, 2);
  const auto result = compare(scratch, {"--again", "a*"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(record(scratch).at("runs").size(), 2);
  for (const auto& run : record(scratch).at("runs")) {
    EXPECT_EQ(run.at("summary").at("exchanges"), run.at("name") == "a" ? 2 : 1);
  }
  EXPECT_EQ(fs::last_write_time(scratch / "out/b/0/summary.json"), of_b);
}

std::string with_rates(const std::string& rates) {
  return kCommon + "[pilot]\nvalidation = 40\nexchanges = 2\n[[run]]\nname = \"a\"\nexchanges = 3\nrates = [" + rates +
         "]\n";
}

TEST(Compare, ARunThatWasUnderWayStaysWhereNewPilotsFail) {
  const Scratch scratch;
  write(scratch / "c.toml", with_rates("0.1"));
  ASSERT_EQ(compare(scratch).status, 0);
  fs::remove(scratch / "out/a/0/summary.json");
  auto interrupted = record(scratch);
  interrupted["runs"][0]["state"] = "waiting";
  interrupted["runs"][0].erase("summary");
  write(scratch / "out/compare.json", interrupted.dump());
  write(scratch / "c.toml", with_rates("1e30"));  // at which losses are not finite
  const auto refused = compare(scratch);
  EXPECT_EQ(refused.status, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("a/0 is under way, at a rate that is none of its"));
  EXPECT_EQ(record(scratch).at("runs").at(0), interrupted["runs"][0]);
}

// What was run with the rate of other pilots stays as it is.
TEST(Compare, ARateThatNewPilotsChangeIsRefusedWithTheRunsOfTheOldOne) {
  const Scratch scratch;
  write(scratch / "c.toml", with_rates("1e-9"));
  ASSERT_EQ(compare(scratch).status, 0);
  write(scratch / "c.toml", with_rates("0.1"));
  const auto refused = compare(scratch);
  EXPECT_EQ(refused.status, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("out/a/0 was made with other options"));
  const auto kept = record(scratch).at("runs").at(0);
  EXPECT_EQ(kept.at("state"), "done");
  EXPECT_EQ(kept.at("options").at("lr"), "1e-09");
}

TEST(Compare, WhatNoRunCouldDoIsRefusedBeforeAnythingRuns) {
  const Scratch scratch;
  const auto with = [&](const std::string& line) {
    const std::string good = "[[run]]\nname = \"good\"\nexchanges = 1\n";
    return refusal(scratch, kCommon + good + "[[run]]\nname = \"a\"\n" + line + "\n", "good");
  };
  EXPECT_THAT(with("strategy = \"dpp\""), HasSubstr("compare: run 'a': --strategy: got 'dpp'"));
  EXPECT_THAT(with("dataset = \"cifar10\""),
              HasSubstr("compare: run 'a': --samples: --dataset cifar10 does not read it"));
  EXPECT_THAT(with("model = \"resnet9\""), HasSubstr("compare: run 'a': --model"));
}

TEST(Compare, ABrokenListOfMeasuredPointsIsNamed) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  ASSERT_EQ(compare(scratch).status, 0);
  write(scratch / "out/verify.json", "[");
  const auto again = compare(scratch);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.errors, HasSubstr("out/verify.json: "));
}

TEST(Compare, EveryRunIsRecordedWithItsBuildAndMachine) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  ASSERT_EQ(compare(scratch).status, 0);
  const auto written = record(scratch);
  const std::string commit = written.at("commit");
  EXPECT_EQ(written.at("dirty"), commit == "unknown" || commit.ends_with("-dirty"));
  const auto& entry = written.at("runs").at(0);
  EXPECT_EQ(entry.at("commit"), commit);
  EXPECT_THAT(std::string(entry.at("processor")), testing::MatchesRegex(".+, (AVX512|AVX2|DEFAULT)"));
  EXPECT_THAT(std::string(entry.at("versions").at("libtorch")), StartsWith("2."));
  const auto refused = run(scratch.path(), {"compare", "c.toml", "--output", "again"});
  EXPECT_EQ(refused.status, written.at("dirty") ? 2 : 0);
  if (written.at("dirty")) {
    EXPECT_THAT(refused.errors, HasSubstr("--dirty allows it"));
  }
}

TEST(Compare, TwoDoNotShareADirectory) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(400));
  Running running(scratch.path(), prunex({"compare", "c.toml", "--output", "out", "--dirty"}));
  ASSERT_NO_FATAL_FAILURE(wait_until(scratch, [&] { return fs::exists(scratch / "out/a/0/metrics.jsonl"); }));
  const auto second = compare(scratch);
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.errors, HasSubstr("prunex: out: another prunex compare is at work in it"));
  const auto resumed = run(scratch.path(), {"train", "--resume", "out/a/0"});
  EXPECT_EQ(resumed.status, 1);
  EXPECT_THAT(resumed.errors, HasSubstr("out/a/0: another prunex train is at work in it"));
  ::kill(running.pid(), SIGINT);
  EXPECT_EQ(running.finish().status, 130);
}

TEST(Compare, DryRunPrintsThePlanAndWritesNothing) {
  const Scratch scratch;
  write(scratch / "c.toml", "seeds = [4]\n" + one_run(1));
  const auto plan = compare(scratch, {"--dry-run"});
  EXPECT_EQ(plan.status, 0);
  EXPECT_THAT(plan.output, HasSubstr("a seed 4"));
  EXPECT_THAT(plan.output, HasSubstr("prunex train --config out/a/4.toml --run-dir out/a/4"));
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(Compare, DryRunShowsWhatWouldBeMadeAnewAndKeepsIt) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  ASSERT_EQ(compare(scratch).status, 0);
  EXPECT_THAT(compare(scratch, {"--dry-run"}).output, StartsWith("done "));
  EXPECT_THAT(compare(scratch, {"--dry-run", "--again", "a"}).output, StartsWith("to do "));
  EXPECT_TRUE(fs::exists(scratch / "out/a/0/summary.json"));
}

TEST(Compare, OptionsThatMakeNoSenseGetOneLine) {
  const Scratch scratch;
  write(scratch / "c.toml", one_run(1));
  EXPECT_THAT(compare(scratch, {"--jobs", "0"}).errors, "prunex: --jobs: got 0, wanted 1 or more\n");
  EXPECT_THAT(compare(scratch, {"--again", ""}).errors, HasSubstr("--again: got ''"));
  EXPECT_THAT(compare(scratch, {"--verify-exchanges", "2"}).errors, HasSubstr("needs --verify"));
  write(scratch / "out", "a file");
  EXPECT_THAT(compare(scratch).errors, HasSubstr("--output: cannot create out: "));
}

TEST(Compare, TheShippedFilesAreValid) {
  for (const auto& entry : fs::directory_iterator(PRUNEX_SOURCE_DIR "/compare")) {
    if (entry.path().extension() != ".toml") continue;
    const Scratch scratch;
    const auto plan = run(scratch.path(), {"compare", entry.path().string(), "--dry-run"});
    EXPECT_EQ(plan.status, 0) << entry.path() << ": " << plan.errors;
  }
}

TEST(Report, BadDirectoriesGetOneLine) {
  const Scratch scratch;
  for (const char* directory : {"nothing", "."}) {
    const auto refused = run(scratch.path(), {"report", directory});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.errors, HasSubstr(std::string("prunex: report: ") + directory));
    EXPECT_EQ(std::count(refused.errors.begin(), refused.errors.end(), '\n'), 1);
  }
  EXPECT_FALSE(fs::exists(scratch / "report.html"));
}

}  // namespace
}  // namespace prunex::cli
