// The figure of efficiency against the number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::SizeIs;
using tests::RunFiles;
using tests::Scratch;
using tests::write_run;

/// Of every line of the scaling figure, from the smallest layout on.
std::map<std::string, std::vector<double>> efficiencies_of(const Scratch& scratch) {
  const auto json = nlohmann::json::parse(make_report(find_runs({scratch / "runs"}), {.command = "report"}).json);
  std::map<std::string, std::vector<double>> lines;
  for (const auto& figure : json.at("tasks").at(0).at("figures")) {
    if (figure.at("id") != "scaling" || !figure.contains("data")) continue;
    for (const auto& row : figure.at("data")) {
      if (row.contains("efficiency")) lines[row.at("run")].push_back(row.at("efficiency"));
    }
  }
  return lines;
}

TEST(Scaling, BeginsAtOneNodeWhichHasNoPartition) {
  const Scratch scratch;
  RunFiles run;
  run.options["nodes"] = "1";
  write_run(scratch / "runs/a", run);
  run.options["nodes"] = "2";
  run.options["batch-size"] = "5";
  run.options["partition"] = "\"iid\"";
  run.local_seconds = 1;
  write_run(scratch / "runs/b", run);
  auto lines = efficiencies_of(scratch);
  ASSERT_EQ(lines.size(), 1);
  ASSERT_THAT(lines.begin()->second, SizeIs(2));
  EXPECT_DOUBLE_EQ(lines.begin()->second[0], 1);
  EXPECT_NEAR(lines.begin()->second[1], 3.0 / 2 / 2, 1e-12)
      << "2 s of steps and 1 s of the exchange against 1 s and 1 s";

  run.options["payload"] = "\"int2\"";
  write_run(scratch / "runs/c", run);
  EXPECT_EQ(efficiencies_of(scratch).size(), 2) << "both begin at the one node";
}

TEST(Scaling, HasOneRunOfEveryNumberOfRanks) {
  const Scratch scratch;
  RunFiles run;
  for (const auto& [name, nodes, rate] : std::vector<std::array<const char*, 3>>{
           {"a", "2", "0.1"}, {"b", "2", "0.2"}, {"c", "4", "0.1"}, {"d", "4", "0.2"}, {"e", "8", "0.2"}}) {
    run.options["nodes"] = nodes;
    run.options["lr"] = rate;
    write_run(scratch / (std::string("runs/") + name), run);
  }
  std::vector<size_t> sizes;
  for (const auto& [name, line] : efficiencies_of(scratch)) sizes.push_back(line.size());
  EXPECT_THAT(sizes, testing::UnorderedElementsAre(2, 3));
}

TEST(Scaling, KeepsALineWhoseRateGrowsWithItsRanks) {
  const Scratch scratch;
  RunFiles run;
  for (const char* nodes : {"2", "4"}) {
    run.options["nodes"] = nodes;
    run.options["lr"] = std::string("0.") + nodes;
    write_run(scratch / (std::string("runs/") + nodes), run);
  }
  run.options["ranks-per-node"] = "2";  // four ranks, too
  run.options["nodes"] = "2";
  run.options["lr"] = "0.4";
  write_run(scratch / "runs/pairs", run);
  const auto lines = efficiencies_of(scratch);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines.begin()->second, SizeIs(2));
}

TEST(Scaling, JoinsNoRunsThatDifferInMoreThanTheirLayout) {
  const Scratch scratch;
  RunFiles run;
  run.options["nodes"] = "2";
  run.options["payload"] = "\"int2\"";
  write_run(scratch / "runs/a", run);
  run.options["nodes"] = "4";
  run.options.erase("payload");
  write_run(scratch / "runs/b", run);
  EXPECT_THAT(efficiencies_of(scratch), testing::IsEmpty());
}

}  // namespace
}  // namespace prunex::report
