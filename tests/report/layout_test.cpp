// Set-ups are by hand, of what each file says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::Scratch;
using tests::write_text;

constexpr const char* kSummary =
    R"({"strategy": "hsadmm", "model": "resnet8", "dataset": "synthetic", "seed": 3, "nodes": 2, "ranks_per_node": 1,
        "sites": 1, "accuracy": 0.5})";

std::string summary_of(const std::vector<std::string>& directories) {
  return make_report(find_runs(directories), {.command = "prunex report"}).summary;
}

TEST(Layout, OfARecordedRunIsCompletedFromItsSummary) {
  const Scratch scratch;
  const std::string options = R"("options": {"model": "\"resnet8\"", "dataset": "\"synthetic\"", "nodes": "2"})";
  tests::write_run(scratch / "a/1", {});
  write_text(scratch / "compare.json", R"({"pilots": [], "runs": [{"name": "a", "directory": "a/0", )" + options +
                                           R"(, "summary": )" + kSummary + R"(}, {"name": "a", "directory": "a/1", )" +
                                           options + "}]}");
  EXPECT_THAT(summary_of({scratch.path()}), HasSubstr("resnet8 on synthetic; 2 nodes x 1 rank; 2 seeds."));
}

TEST(Layout, WithoutConfigIsThatOfTheSummary) {
  const Scratch scratch;
  write_text(scratch / "a/summary.json", kSummary);
  EXPECT_THAT(summary_of({scratch.path()}), HasSubstr("resnet8 on synthetic; 2 nodes x 1 rank; 1 seed."));
  const auto run = read_run(scratch / "a");
  EXPECT_EQ(run.nodes(), 2);
  EXPECT_EQ(run.ranks(), 2);
  EXPECT_EQ(run.option("seed"), "3");
}

TEST(Layout, OfUnevenNodesIsReadFromTheSummary) {
  const Scratch scratch;
  write_text(scratch / "a/summary.json", R"({"nodes": 3, "ranks_per_node": [4, 2, 1], "accuracy": 0.5})");
  EXPECT_EQ(read_run(scratch / "a").ranks(), 7);
  EXPECT_THAT(summary_of({scratch.path()}), HasSubstr("3 nodes x 4,2,1 ranks"));
}

TEST(Layout, OptionsWinOverTheSummary) {
  report::Run run;
  run.options = {{"nodes", "4"}};
  run.summary = Summary{.options = {{"nodes", "2"}, {"ranks-per-node", "3"}}};
  EXPECT_EQ(run.nodes(), 4);
  EXPECT_EQ(run.ranks(), 12);
}

TEST(Layout, OfAnUnfinishedRunOfAComparisonIsWhatTheComparisonDeclares) {
  const Scratch scratch;
  write_text(scratch / "a/0/metrics.jsonl", "");
  write_text(scratch / "compare.json", R"({"pilots": [], "runs": [{"name": "a", "directory": "a/0",
    "options": {"model": "\"resnet8\"", "dataset": "\"synthetic\"", "nodes": "2", "ranks-per-node": "\"2\""}}]})");
  EXPECT_THAT(summary_of({scratch.path()}), HasSubstr("resnet8 on synthetic; 2 nodes x 2 ranks; 1 seed."));
}

TEST(Layout, ThatNoFileKnowsIsNotMadeUp) {
  const Scratch scratch;
  write_text(scratch / "a/metrics.jsonl", "");
  EXPECT_THAT(summary_of({scratch.path()}), HasSubstr("layout unknown"));
  EXPECT_THAT(summary_of({scratch.path()}), Not(HasSubstr("node")));
}

}  // namespace
}  // namespace prunex::report
