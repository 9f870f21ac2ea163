// Expected values: written by hand from docs/report.md, "Comparisons".
#include "study/comparison_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/io/files.h"
#include "report/report.h"
#include "report/usual_seconds.h"
#include "study/verify.h"
#include "tests/report/run_files.h"
#include "tests/study/comparison_files.h"
#include "tests/texts.h"

namespace prunex::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using tests::Scratch;
using tests::write_text;

void finish(const ComparisonRecord& record, const Job& job, double validation_accuracy) {
  write_text(record.path_of(job) + "/summary.json",
             nlohmann::json{{"accuracy", 0.5}, {"validation_accuracy", validation_accuracy}}.dump());
}

TEST(ComparisonRecord, TheBestRateOnHeldOutImagesIsChosenWhenAllPilotsHaveEnded) {
  const Scratch scratch;
  const auto comparison = read(scratch, kFile);
  const auto pilots = pilots_of(comparison);
  ComparisonRecord record(scratch / "out");
  finish(record, pilots[0], 0.4);
  record.note(pilots[0], JobState::kDone);
  EXPECT_FALSE(record.rate_of(comparison.runs[0], pilots));
  finish(record, pilots[1], 0.6);
  record.note(pilots[1], JobState::kDone);
  EXPECT_EQ(record.rate_of(comparison.runs[0], pilots), 0.1);
}

TEST(Comparison, AGridGoesOnWhileItsBestIsAtAnEnd) {
  const Scratch scratch;
  const std::string file = "[pilot]\nvalidation = 1\n[[run]]\nname = \"a\"\nrates = ";
  const auto comparison = read(scratch, file + "\"0.1..0.4\"\n");
  EXPECT_THAT(comparison.runs[0].rates, ElementsAre(0.1, 0.2, 0.4));
  ComparisonRecord record(scratch / "out");
  const auto rates = [&] { return widened(comparison, record).runs[0].rates; };
  const auto pilot = [&](double rate, double accuracy) {
    for (const auto& job : pilots_of(widened(comparison, record))) {
      if (job.rate != rate) continue;
      finish(record, job, accuracy);
      record.note(job, JobState::kDone);
    }
  };
  pilot(0.1, 0.3);
  pilot(0.2, 0.4);
  EXPECT_THAT(rates(), ElementsAre(0.1, 0.2, 0.4));  // one is missing
  pilot(0.4, 0.5);
  EXPECT_THAT(rates(), ElementsAre(0.1, 0.2, 0.4, 0.8));
  pilot(0.8, 0.6);
  EXPECT_THAT(rates(), ElementsAre(0.1, 0.2, 0.4, 0.8, 1.6));
  EXPECT_FALSE(record.rate_of(widened(comparison, record).runs[0], pilots_of(widened(comparison, record))));
  pilot(1.6, 0.2);
  EXPECT_THAT(rates(), ElementsAre(0.1, 0.2, 0.4, 0.8, 1.6));
  EXPECT_EQ(record.rate_of(widened(comparison, record).runs[0], pilots_of(widened(comparison, record))), 0.8);
  for (const char* wrong : {"0.1..0.3", "0..1", "0.1", "0.4..0.1", "0.1..0.2x", "-1..1", "1..inf"}) {
    EXPECT_THAT(refusal(file + "\"" + wrong + "\"\n"), HasSubstr(std::string("c.toml:5: rates: got '") + wrong));
  }
}

TEST(Comparison, AGridDoesNotGoOnWhereARateIsNoBetter) {
  const Scratch scratch;
  const auto comparison = read(scratch, "[pilot]\nvalidation = 1\n[[run]]\nname = \"a\"\nrates = \"0.1..0.2\"\n");
  ComparisonRecord record(scratch / "out");
  for (int round = 0; round < 3; ++round) {
    for (const auto& pilot : pilots_of(widened(comparison, record))) {
      finish(record, pilot, 0.5);
      record.note(pilot, JobState::kDone);
    }
  }
  const Comparison wide = widened(comparison, record);
  EXPECT_THAT(wide.runs[0].rates, ElementsAre(0.1, 0.2, 0.05));
  EXPECT_EQ(record.rate_of(wide.runs[0], pilots_of(wide)), 0.1);
}

TEST(ComparisonRecord, AListOfRatesStaysAsItIs) {
  const Scratch scratch;
  const auto comparison = read(scratch, kFile);
  ComparisonRecord record(scratch / "out");
  for (const auto& pilot : pilots_of(comparison)) {
    finish(record, pilot, pilot.rate);
    record.note(pilot, JobState::kDone);
  }
  EXPECT_EQ(widened(comparison, record).runs[0].rates, comparison.runs[0].rates);
}

TEST(ComparisonRecord, WhatTheReportCannotReadIsNotFinished) {
  const Scratch scratch;
  const auto pilots = pilots_of(read(scratch, kFile));
  ComparisonRecord record(scratch / "out");
  record.note(pilots[0], JobState::kWaiting);
  write_text(record.path_of(pilots[0]) + "/summary.json", R"({"strategy": "ddp"})");
  EXPECT_EQ(record.state_of(pilots[0]), JobState::kWaiting);
  EXPECT_TRUE(record.summary_of(pilots[0]).is_null());
  finish(record, pilots[0], 0.4);
  EXPECT_EQ(record.state_of(pilots[0]), JobState::kDone);
}

TEST(ComparisonRecord, TheBestMeanOverThePilotsSeedsIsChosen) {
  const Scratch scratch;
  const auto comparison = read(scratch, kTwoSeeds);
  const auto pilots = pilots_of(comparison);
  ComparisonRecord record(scratch / "out");
  const std::vector<double> accuracies{0.5, 0.5, 0.6, 0.3};  // the best single one is of the worse rate
  for (size_t i = 0; i < pilots.size(); ++i) {
    EXPECT_FALSE(record.rate_of(comparison.runs[0], pilots)) << i;
    finish(record, pilots[i], accuracies[i]);
    record.note(pilots[i], JobState::kDone);
  }
  EXPECT_EQ(record.rate_of(comparison.runs[0], pilots), 0.1);
}

TEST(ComparisonRecord, FailedPilotsAreNotChosen) {
  const Scratch scratch;
  const auto comparison = read(scratch, kFile);
  const auto pilots = pilots_of(comparison);
  ComparisonRecord record(scratch / "out");
  record.note(pilots[1], JobState::kFailed, "diverged");
  finish(record, pilots[0], 0.1);
  record.note(pilots[0], JobState::kDone);
  EXPECT_EQ(record.rate_of(comparison.runs[0], pilots), 0.05);
}

TEST(ComparisonRecord, IsReadBackWithoutTheRunDirectories) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3", .options = {{"keep", "0.5"}}};
  ComparisonRecord record(scratch / "out");
  finish(record, job, 0.4);
  record.note(job, JobState::kDone);
  record.write({{"version", "0"}});
  std::filesystem::remove_all(scratch / "out/a");

  const ComparisonRecord again(scratch / "out");
  EXPECT_EQ(again.state_of(job), JobState::kDone);
  EXPECT_EQ(again.summary_of(job).at("accuracy"), 0.5);
  Job changed = job;
  changed.options["keep"] = "0.4";
  EXPECT_EQ(again.state_of(changed), JobState::kWaiting);
  EXPECT_TRUE(again.is_stale(changed));
  EXPECT_FALSE(again.is_stale(job));
}

TEST(ComparisonRecord, ARunIsMadeByTheBuildThatStartedIt) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  ComparisonRecord first(scratch / "out", {{"commit", "c0ffee"}});
  first.claim();
  first.note(job, JobState::kWaiting);
  first.write({{"version", "0"}});
  finish(first, job, 0.4);  // when nobody looks any more

  ComparisonRecord second(scratch / "out", {{"commit", "decade"}});
  const Job own{.name = "b", .seed = 0, .directory = "b/0"};
  finish(second, own, 0.4);
  for (const auto& done : {job, own}) second.note(done, JobState::kDone);
  second.write({{"version", "0"}});
  std::ifstream file(scratch / "out/compare.json");
  const auto runs = nlohmann::json::parse(file).at("runs");
  EXPECT_EQ(runs.at(0).at("commit"), "c0ffee");
  EXPECT_EQ(runs.at(1).at("commit"), "decade");
}

TEST(ComparisonRecord, ARunThatGoesOnNamesAllItsCommits) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  const auto commit_after_start = [&](const std::string& commit) {
    ComparisonRecord record(scratch / "out", {{"commit", commit}});
    record.claim();
    record.note(job, JobState::kWaiting);
    record.write({{"version", "0"}});
    std::ifstream file(scratch / "out/compare.json");
    return std::string(nlohmann::json::parse(file).at("runs").at(0).at("commit"));
  };
  EXPECT_EQ(commit_after_start("c0ffee"), "c0ffee");
  EXPECT_EQ(commit_after_start("decade"), "decade");  // it was stopped before its first checkpoint
  write_text(scratch / "out/a/3/checkpoint/000002/z", "");
  EXPECT_EQ(commit_after_start("facade"), "decade, then facade");
  EXPECT_EQ(commit_after_start("facade"), "decade, then facade");
}

TEST(ComparisonRecord, KeepsTheExchangesOfRunsAndTimingsForTheReport) {
  const Scratch scratch;
  tests::write_run(scratch / "out/a/3", {});
  tests::RunFiles alone;
  alone.local_seconds = 1;
  tests::write_run(scratch / "out/a/timing", alone);
  ComparisonRecord record(scratch / "out");
  record.note({.name = "a", .seed = 3, .directory = "a/3"}, JobState::kDone);
  record.note({.name = "a", .kind = JobKind::kTiming, .directory = "a/timing"}, JobState::kDone);
  record.write({{"version", "0"}});
  std::filesystem::remove_all(scratch / "out/a");
  const auto runs = report::find_runs({scratch / "out"}).runs;
  ASSERT_THAT(runs, SizeIs(1));
  EXPECT_THAT(runs[0].exchanges, SizeIs(4));
  EXPECT_DOUBLE_EQ(report::usual_seconds(runs[0]).local, 4 * 1);  // the run's own took 4 x 2
}

/// prunex/train/options/presets.cpp: DiLoCo in 2 bits, every 40 steps where the run says nothing else.
TEST(ComparisonRecord, NamesWhatAPresetSets) {
  const Scratch scratch;
  ComparisonRecord record(scratch / "out");
  const Job job{.name = "a",
                .seed = 3,
                .directory = "a/3",
                .options = {{"preset", "\"slow-link\""}, {"nodes", "2"}, {"local-steps", "20"}}};
  tests::write_run(record.path_of(job), {});
  record.note(job, JobState::kDone);
  record.write({{"version", "0"}});
  std::filesystem::remove_all(scratch / "out/a");
  const auto run = report::find_runs({scratch / "out"}).runs.at(0);
  EXPECT_FALSE(run.has_unknown_preset);
  EXPECT_EQ(run.option("payload"), "int2");
  EXPECT_EQ(run.option("local-steps"), "20");
  EXPECT_FALSE(run.declared.contains("payload"));
}

TEST(ComparisonRecord, ARunOfAPresetIsDoneWithoutItsImages) {
  const Scratch scratch;
  const Job job{
      .name = "a", .seed = 3, .directory = "a/3", .options = {{"preset", "\"slow-link\""}, {"dataset", "\"images\""}}};
  ComparisonRecord record(scratch / "out");
  tests::write_run(record.path_of(job), {});
  record.note(job, JobState::kDone);
  record.write({{"version", "0"}});
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kDone);
}

TEST(ComparisonRecord, ARunOfAPresetThatSetSomethingElseIsStale) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3", .options = {{"preset", "\"slow-link\""}, {"nodes", "2"}}};
  {
    ComparisonRecord record(scratch / "out");
    tests::write_run(record.path_of(job), {});
    record.note(job, JobState::kDone);
    record.write({{"version", "0"}});
  }
  std::filesystem::remove_all(scratch / "out/a");
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kDone);
  EXPECT_FALSE(ComparisonRecord(scratch / "out").is_stale(job));
  std::string text = tests::text_of(scratch / "out/compare.json");
  const auto at = text.find("int2");
  ASSERT_NE(at, std::string::npos);
  io::write_file_atomically(scratch / "out/compare.json", text.replace(at, 4, "int8"));
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kWaiting);
  EXPECT_TRUE(ComparisonRecord(scratch / "out").is_stale(job));
}

TEST(ComparisonRecord, NamesTheRunsThatTheFileHasNoMore) {
  const Scratch scratch;
  ComparisonRecord record(scratch / "out");
  for (const int64_t seed : {7, 8, 10}) {
    record.note({.name = "second", .seed = seed, .directory = "second/" + std::to_string(seed)}, JobState::kFailed);
  }
  record.note({.name = "third", .seed = 0, .directory = "third/0"}, JobState::kFailed);
  EXPECT_THAT(record.beside(read(scratch, kFile)), ElementsAre("second/10", "third/0"));
}

TEST(ComparisonRecord, ADirectoryThatIsNotOfTheComparisonIsStale) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  std::filesystem::create_directories(scratch / "out/a/3");
  EXPECT_TRUE(ComparisonRecord(scratch / "out").is_stale(job));
}

TEST(ComparisonRecord, WhatIsForgottenIsThereUntilItIsRemoved) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  ComparisonRecord record(scratch / "out");
  finish(record, job, 0.4);
  record.note(job, JobState::kDone);
  record.write({{"version", "0"}});
  record.forget("a");
  EXPECT_EQ(record.state_of(job), JobState::kWaiting);
  EXPECT_FALSE(record.is_stale(job));
  EXPECT_TRUE(std::filesystem::exists(record.path_of(job)));
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kDone);
  record.remove_forgotten({{"version", "0"}});
  EXPECT_FALSE(std::filesystem::exists(record.path_of(job)));
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kWaiting);
}

TEST(RemoveRun, LeavesWhatARunIsAtWorkIn) {
  const Scratch scratch;
  const std::string run = scratch / "a/0";
  std::filesystem::create_directories(run);
  {
    const io::DirectoryLock lock(run, "prunex train");
    EXPECT_EQ(tests::message([&] { remove_run(run); }), run + ": another prunex train is at work in it");
    EXPECT_TRUE(std::filesystem::exists(run));
  }
  remove_run(run);
  EXPECT_FALSE(std::filesystem::exists(run));
  EXPECT_NO_THROW(remove_run(run));
}

TEST(ComparisonRecord, ABrokenFileIsRefused) {
  const Scratch scratch;
  write_text(scratch / "out/compare.json", "{\"runs\"");
  EXPECT_THAT([&] { ComparisonRecord(scratch / "out"); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("out/compare.json: not valid JSON")));
}

TEST(ComparisonRecord, WhatIsNoUtf8IsWrittenWithAMark) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  ComparisonRecord record(scratch / "out");
  std::filesystem::create_directories(scratch / "out");
  record.note(job, JobState::kFailed, "caf\xe9.jpg: broken");
  record.write({{"command", "--output caf\xe9"}});
  EXPECT_EQ(ComparisonRecord(scratch / "out").state_of(job), JobState::kFailed);
}

TEST(Verify, PointsOfForgottenRunsGo) {
  const Scratch scratch;
  write_text(scratch / "verify.json",
             R"([{"name": "a", "seed": 0, "mbit": 25}, {"name": "b", "seed": 0, "mbit": 2.5}])");
  for (const char* run : {"verify/a-0-25", "verify/b-0-2.5"}) {
    write_text(scratch / run + "/summary.json", "{}");
    write_text(scratch / run + ".toml", "");
  }
  forget_points(scratch / "", {"b"});
  EXPECT_EQ(nlohmann::json::parse(tests::text_of(scratch / "verify.json")).size(), 1);
  EXPECT_TRUE(std::filesystem::exists(scratch / "verify/a-0-25"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "verify/a-0-25.toml"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "verify/b-0-2.5"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "verify/b-0-2.5.toml"));
}

}  // namespace
}  // namespace prunex::study
