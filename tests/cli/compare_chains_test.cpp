// prunex compare where runs take files of other runs, and where they have phases: before they start, made anew, timed.
// Expected values: written by hand from docs/report.md, "Comparisons".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/cli/command.h"
#include "tests/cli/compare_files.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using tests::Scratch;

std::string named(const std::string& name, const std::string& lines) {
  return "[[run]]\nname = \"" + name + "\"\n" + lines + "\n";
}

/// "c" has the network of "b", which has that of "a".
std::string chain(const std::string& rate) {
  return kCommon + "exchanges = 1\n" + named("a", "lr = " + rate) + named("b", "model-of = \"a\"") +
         named("c", "model-of = \"b\"") + named("d", "");
}

TEST(CompareChains, AgainMakesRunsAnewThatTakeFilesOfThoseItNames) {
  const Scratch scratch;
  write(scratch / "c.toml", chain("0.1"));
  ASSERT_EQ(compare(scratch).status, 0);
  const auto written = [&](const std::string& name) {
    return fs::last_write_time(scratch / ("out/" + name + "/0/summary.json"));
  };
  const auto of_b = written("b"), of_c = written("c"), of_d = written("d");
  write(scratch / "c.toml", chain("0.2"));
  const auto refused = compare(scratch, {"--again", "a", "--only", "[ab]"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.errors,
            "prunex: --again: 'c' has model-of 'b' and would be made anew, too, but --only leaves it out\n");
  EXPECT_EQ(written("b"), of_b);
  const auto again = compare(scratch, {"--again", "a"});
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_GT(written("b"), of_b);
  EXPECT_GT(written("c"), of_c);
  EXPECT_EQ(written("d"), of_d);
}

TEST(CompareChains, AgainMayLeaveOutRunsThatHaveNoResults) {
  const Scratch scratch;
  write(scratch / "c.toml", chain("0.1"));
  ASSERT_EQ(compare(scratch, {"--only", "a"}).status, 0);
  EXPECT_EQ(compare(scratch, {"--only", "a", "--again", "a"}).status, 0);
}

TEST(CompareChains, RunsOfOnlyTakeNoFilesOfARunWhoseOptionsHaveChanged) {
  const Scratch scratch;
  write(scratch / "c.toml", chain("0.1"));
  ASSERT_EQ(compare(scratch, {"--only", "[ab]"}).status, 0);
  write(scratch / "c.toml", chain("0.2"));
  const auto refused = compare(scratch, {"--only", "c"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("/a/0 was made with other options"));
  EXPECT_EQ(compare(scratch, {"--only", "b"}).status, 0);  // which is done
}

TEST(CompareChains, OptionsOfATeacherThatIsYetToBeTrainedAreFine) {
  const Scratch scratch;
  write(scratch / "c.toml", kCommon + "exchanges = 1\n" + named("a", "") +
                                named("b", "teacher-of = \"a\"\nteacher-share = 0.7\nmax-model-size = 64"));
  const auto result = compare(scratch);
  EXPECT_EQ(result.status, 0) << result.errors;
}

TEST(CompareChains, TheCommonNetworkIsNotThatOfARunWithModelOf) {
  const Scratch scratch;
  write(scratch / "c.toml",
        kCommon + "exchanges = 1\nwidth = 0.5\nnorm = \"group\"\n" + named("a", "") + named("b", "model-of = \"a\""));
  const auto result = compare(scratch);
  EXPECT_EQ(result.status, 0) << result.errors;
  const auto runs = record(scratch).at("runs");
  EXPECT_EQ(runs.at(0).at("summary").at("parameters_dense"), runs.at(1).at("summary").at("parameters_dense"));
}

TEST(CompareChains, WhatDoesNotGoWithAFileToComeIsRefusedBeforeAnythingRuns) {
  const Scratch scratch;
  const auto with = [&](const std::string& lines) {
    return refusal(scratch, kCommon + "exchanges = 1\n" + named("a", "") + named("b", lines), "a");
  };
  EXPECT_THAT(with("model-of = \"a\"\nwidth = 0.5"), HasSubstr("c.toml:18: model-of and width: wanted one of them"));
  EXPECT_THAT(with("teacher-of = \"a\"\nteacher-share = 7"), HasSubstr("run 'b': --teacher-share: got 7"));
  EXPECT_THAT(with("widths-of = \"a\"\nmodel = \"net.pt2\""),
              HasSubstr("run 'b': --widths: the weights of a file are trained"));
  EXPECT_THAT(with("model-of = \"a\"\nprune-to = \"macs=7\""), HasSubstr("run 'b': --prune-to"));
}

TEST(CompareChains, TimingsOfRunsWithPhasesAreAsShortAndHaveBothSizes) {
  const Scratch scratch;
  const std::string cut = "prune-to = \"macs=0.5\"\nfinetune-epochs = 1\nfinetune-lr = 0.01\n";
  write(scratch / "c.toml",
        kCommon + named("rise", "epochs = 1\nwarmup-epochs = 0.9\n" + cut) + named("at-once", "epochs = 0\n" + cut));
  const auto result = compare(scratch, {"--time-exchanges", "4", "--time-load", "1"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto timings = record(scratch).at("timings");
  ASSERT_THAT(timings, testing::SizeIs(2));
  for (const auto& timing : timings) {
    EXPECT_EQ(timing.at("exchanges").at("count"), 4);
    const auto& macs = timing.at("exchanges").at("macs");
    ASSERT_TRUE(macs.is_array());
    const std::set<int64_t> sizes(macs.begin(), macs.end());
    EXPECT_THAT(sizes, testing::SizeIs(2));
    EXPECT_EQ(std::count(macs.begin(), macs.end(), *sizes.begin()), timing.at("name") == "rise" ? 2 : 3);
  }
}

TEST(CompareChains, ATimingThatCannotBeMadeIsRefusedBeforeAnythingRuns) {
  const Scratch scratch;
  const std::string run = "strategy = \"diloco\"\nexchanges = 8\ngroups = \"coupled-inner\"\nlocal-after = 2";
  EXPECT_THAT(refusal(scratch, kTiny + named("a", run), "a", {"--time-exchanges", "1", "--time-load", "1"}),
              HasSubstr("compare: timing of run 'a': --local-after: got 1"));
}

TEST(CompareChains, VerificationsOfRunsWithPhasesAreAsShort) {
  const Scratch scratch;
  write(scratch / "c.toml",
        kCommon + named("a", "epochs = 1\nwarmup-steps = 9\nprune-to = \"macs=0.5\"\nfinetune-epochs = 2"));
  write(scratch / "cluster.sh", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n");
  fs::permissions(scratch / "cluster.sh", fs::perms::owner_all);
  const auto result =
      compare(scratch, {"--verify", "100", "--verify-exchanges", "4", "--cluster", scratch / "cluster.sh"});
  ASSERT_EQ(result.status, 0) << result.output << result.errors;
  std::ifstream file(scratch / "out/verify/a-0-100/summary.json");
  EXPECT_EQ(nlohmann::json::parse(file).at("exchanges"), 4);
}

}  // namespace
}  // namespace prunex::cli
