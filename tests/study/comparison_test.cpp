// Expected values: written by hand from docs/report.md, "Comparisons".
#include "study/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "report/report.h"
#include "study/comparison_record.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::study {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;
using tests::Scratch;

constexpr const char* kFile = R"(seeds = [0, 1]
[common]
dataset = "synthetic"
width = 1.1
epochs = 8
[pilot]
epochs = 1
validation = 100
[[run]]
name = "first"
strategy = "ddp"
rates = [0.05, 0.1]
[[run]]
name = "second"
no-shrink = true
epochs = 2
seeds = [7, 8, 9]
)";

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

Comparison read(const Scratch& scratch, const std::string& text) {
  write(scratch / "c.toml", text);
  return read_comparison(scratch / "c.toml", [](const std::string& name) { return name != "widht"; });
}

std::string refusal(const std::string& text) {
  const Scratch scratch;
  try {
    read(scratch, text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Comparison, ARunsOwnOptionsWinOverTheCommonOnes) {
  const Scratch scratch;
  const auto comparison = read(scratch, kFile);
  ASSERT_THAT(comparison.runs, SizeIs(2));
  EXPECT_THAT(comparison.runs[0].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "8"),
                                                      Pair("strategy", "\"ddp\""), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[1].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "2"),
                                                      Pair("no-shrink", "true"), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[1].seeds, ElementsAre(7, 8, 9));
}

TEST(Comparison, FirstSeedsOfAllRunsComeFirst) {
  const Scratch scratch;
  std::vector<std::string> titles;
  for (const auto& job : jobs_of(read(scratch, kFile), [](const NamedRun&) { return 0.05; })) {
    titles.push_back(job.directory);
  }
  EXPECT_THAT(titles, ElementsAre("first/0", "second/7", "first/1", "second/8", "second/9"));
}

TEST(Comparison, PilotsHaveTheirOwnLengthAndRate) {
  const Scratch scratch;
  const auto pilots = pilots_of(read(scratch, kFile));
  ASSERT_THAT(pilots, SizeIs(2));
  EXPECT_EQ(pilots[0].directory, "first/pilot-0.05");
  EXPECT_EQ(config_of(pilots[1], "runs"),
            "dataset = \"synthetic\"\nepochs = 1\nlr = 0.1\nstrategy = \"ddp\"\nvalidation = 100\nwidth = 1.1\n");
}

constexpr const char* kWidths = R"(seeds = [0, 1]
[[run]]
name = "cut"
[[run]]
name = "small"
widths-of = "cut"
strategy = "ddp"
seeds = [1]
)";

TEST(Comparison, ARunMayHaveTheWidthsOfAnotherOfEqualSeed) {
  const Scratch scratch;
  const auto jobs = jobs_of(read(scratch, kWidths), [](const NamedRun&) { return std::nullopt; });
  ASSERT_THAT(jobs, SizeIs(3));
  EXPECT_EQ(jobs[1].directory, "small/1");
  EXPECT_EQ(config_of(jobs[1], "runs/of mine"),
            "seed = 1\nstrategy = \"ddp\"\nwidths = \"runs/of mine/cut/1/structure.json\"\n");
  EXPECT_EQ(config_of(jobs[0], "runs"), "seed = 0\n");
}

TEST(Comparison, ARunMayBeLikeAnotherButForItsOwnOptions) {
  const Scratch scratch;
  const auto comparison = read(scratch, std::string(kFile) + R"([[run]]
name = "third"
like = "second"
epochs = 3
[[run]]
name = "fourth"
like = "first"
lr = 0.2
)");
  ASSERT_THAT(comparison.runs, SizeIs(4));
  EXPECT_THAT(comparison.runs[2].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "3"),
                                                      Pair("no-shrink", "true"), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[2].seeds, ElementsAre(0, 1));
  EXPECT_THAT(comparison.runs[3].rates, SizeIs(0));
  EXPECT_EQ(comparison.runs[3].options.at("lr"), "0.2");
  EXPECT_EQ(comparison.runs[3].options.at("strategy"), "\"ddp\"");
}

TEST(Comparison, RatesWinOverTheRateOfARunThatItIsLike) {
  const Scratch scratch;
  const auto comparison = read(scratch, R"([pilot]
validation = 9
[[run]]
name = "a"
lr = 0.1
[[run]]
name = "b"
like = "a"
rates = [1, 2]
)");
  EXPECT_EQ(comparison.runs[1].options.count("lr"), 0);
  EXPECT_THAT(comparison.runs[1].rates, ElementsAre(1, 2));
}

TEST(Comparison, RunsThatWaitForAPilotAreNotThereYet) {
  const Scratch scratch;
  EXPECT_THAT(jobs_of(read(scratch, kFile), [](const NamedRun&) { return std::nullopt; }), SizeIs(3));
}

TEST(Comparison, TimingsAreTheFirstSeedsCutShort) {
  const Scratch scratch;
  const auto runs = jobs_of(read(scratch, kFile), [](const NamedRun&) { return 0.1; });
  const auto timings = timings_of(first_seeds_of(runs), 10);
  std::set<std::string> names;
  for (const auto& run : runs) names.insert(run.name);
  ASSERT_THAT(timings, SizeIs(names.size()));
  EXPECT_LT(timings.size(), runs.size());
  for (const auto& timing : timings) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Job& job) { return job.name == timing.name; });
    EXPECT_EQ(timing.seed, run->seed);
    EXPECT_EQ(timing.directory, timing.name + "/timing");
    OptionValues options = run->options;
    for (const char* off : {"eval-every", "checkpoint-every"}) options[off] = "0";
    options["exchanges"] = "10";
    EXPECT_EQ(timing.options, options);
  }
}

TEST(Comparison, TimingsShortenWhatCountsExchanges) {
  const Job run{.name = "a", .directory = "a/0", .options = {{"local-after", "20"}, {"prune-end", "52"}}};
  const auto timing = timings_of({run}, 8).at(0);
  EXPECT_EQ(timing.options.at("local-after"), "2");
  EXPECT_EQ(timing.options.at("prune-end"), "4");
  EXPECT_FALSE(timing.options.contains("freeze-after"));
}

TEST(Comparison, WhateverIsWrongIsNamedWithItsLine) {
  const auto of = [](const std::string& what) {
    return refusal("[pilot]\nvalidation = 9\n[[run]]\nname = \"a\"\n[[run]]\nname = \"b\"\n" + what);
  };
  EXPECT_THAT(of("widths-of = \"c\"\n"), HasSubstr("widths-of: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("widths-of = \"b\"\n"), HasSubstr("widths-of: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("widths-of = \"a\"\nrates = [1]\n"), HasSubstr("widths-of and rates: a pilot ends before"));
  EXPECT_THAT(of("widths-of = \"a\"\nwidths = \"x\"\n"), HasSubstr("widths-of and widths: wanted one of them"));
  EXPECT_THAT(of("widths-of = \"a\"\nseeds = [0, 3]\n"), HasSubstr("widths-of: 'a' has no seed 3"));
  EXPECT_THAT(of("like = \"b\"\n"), HasSubstr("like: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("rates = [1]\n[[run]]\nname = \"c\"\nlike = \"b\"\n"),
              HasSubstr("like: 'b' has rates, which pilots choose from; wanted lr or rates here, too"));
  EXPECT_THAT(of("widths-of = \"a\"\n[[run]]\nname = \"c\"\nlike = \"b\"\n"),
              HasSubstr("like: 'b' has widths-of; wanted it here, too"));
  EXPECT_THAT(refusal("[common]\nwidht = 2\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:2: 'widht' is not an option"));
  EXPECT_THAT(refusal("[commun]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:1: 'commun' is not known here"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\n\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:4: there are two"));
  EXPECT_THAT(refusal("[[run]]\nname = \"../a\"\n"), HasSubstr("c.toml:1: name: got '../a'"));
  EXPECT_THAT(refusal("[[run]]\nname = \"compare.json\"\n"),
              HasSubstr("c.toml:1: name: got 'compare.json', a file of"));
  EXPECT_THAT(refusal("[[run]]\nname = \"" + std::string(101, 'a') + "\"\n"), HasSubstr("at most 100 letters"));
  EXPECT_THAT(refusal("seeds = [1,\n1]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:2: seeds: 1 is there twice"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [0.1, 0.1]\n"), HasSubstr("c.toml:3: rates: 0.1 is there twice"));
  EXPECT_THAT(refusal("[[run]]\nkeep = 1\n"), HasSubstr("c.toml:1: a [[run]] wants name"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nkeep = [1]\n"), HasSubstr("c.toml:3: keep: wanted a word"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [\"x\"]\n"), HasSubstr("c.toml:3: rates: wanted a list"));
  EXPECT_THAT(refusal("seeds = [-1]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:1: seeds: got -1"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nseed = 1\n"), HasSubstr("c.toml:3: 'seed' is set by seeds"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [1]\n"), EndsWith("wanted [pilot] with validation = N"));
  EXPECT_THAT(refusal("[[run]]\nname = = 1\n"), HasSubstr("c.toml:2: "));
  EXPECT_THAT(refusal("seeds = [0]\n"), HasSubstr("no [[run]]"));
  EXPECT_THAT(refusal(""), HasSubstr("no [[run]]"));
}

TEST(Comparison, AFileThatIsNotThereIsNamed) {
  EXPECT_THROW(read_comparison("/nowhere/c.toml", [](const std::string&) { return true; }), std::invalid_argument);
}

void finish(const ComparisonRecord& record, const Job& job, double validation_accuracy) {
  write(record.path_of(job) + "/summary.json",
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
  write(record.path_of(pilots[0]) + "/summary.json", R"({"strategy": "ddp"})");
  EXPECT_EQ(record.state_of(pilots[0]), JobState::kWaiting);
  EXPECT_TRUE(record.summary_of(pilots[0]).is_null());
  finish(record, pilots[0], 0.4);
  EXPECT_EQ(record.state_of(pilots[0]), JobState::kDone);
}

constexpr const char* kTwoSeeds = R"([pilot]
validation = 100
seeds = [7, 8]
[[run]]
name = "a"
rates = [0.1, 0.2]
)";

TEST(Comparison, PilotsMayHaveSeveralSeeds) {
  const Scratch scratch;
  const auto pilots = pilots_of(read(scratch, kTwoSeeds));
  ASSERT_THAT(pilots, SizeIs(4));
  EXPECT_EQ(pilots[1].directory, "a/pilot-0.1-8");
  EXPECT_EQ(pilots[1].options.at("seed"), "8");
  EXPECT_EQ(pilots[1].title(), "a pilot, lr 0.1, seed 8");
  EXPECT_THAT(refusal("[pilot]\nvalidation = 1\nseeds = [1]\nseed = 2\n[[run]]\nname = \"a\"\n"),
              HasSubstr("c.toml:4: 'seed' is set by seeds"));
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
  write(scratch / "out/a/3/checkpoint/000002/z", "");
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

TEST(ComparisonRecord, ADirectoryThatIsNotOfTheComparisonIsStale) {
  const Scratch scratch;
  const Job job{.name = "a", .seed = 3, .directory = "a/3"};
  std::filesystem::create_directories(scratch / "out/a/3");
  EXPECT_TRUE(ComparisonRecord(scratch / "out").is_stale(job));
}

TEST(ComparisonRecord, ABrokenFileIsRefused) {
  const Scratch scratch;
  write(scratch / "out/compare.json", "{\"runs\"");
  EXPECT_THROW(ComparisonRecord(scratch / "out"), std::invalid_argument);
}

}  // namespace
}  // namespace prunex::study
