// Student's t is from printed tables, the rest by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::RunFiles;
using tests::Scratch;
using tests::write_run;
using tests::write_text;

/// Seeds with these accuracies, in percent, of ddp and of a run with half of the units.
nlohmann::json report_of_pairs(const Scratch& scratch, const std::vector<std::pair<double, double>>& pairs) {
  for (size_t seed = 0; seed < pairs.size(); ++seed) {
    RunFiles run;
    run.options["seed"] = std::to_string(seed);
    run.accuracy = pairs[seed].second / 100;
    write_run(scratch / fmt::format("runs/a-{}", seed), run);
    run.options["strategy"] = "\"ddp\"";
    run.accuracy = pairs[seed].first / 100;
    write_run(scratch / fmt::format("runs/ddp-{}", seed), run);
  }
  const auto report = make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"});
  return nlohmann::json::parse(report.json).at("tasks").at(0).at("figures").at(0);
}

// Differences -1, -2, -3, -2: mean -2, deviation sqrt(2/3), half width 3.1824 x 0.4082 = 1.3. 0.3 points want 31 pairs
// (2.0423 x 0.8165 / sqrt(31) = 0.2995; 2.0452 x 0.8165 / sqrt(30) = 0.305), 2 points 4 (1.3; of 3 4.3027 x 0.4714
// = 2.03).
TEST(Differences, BeginThePageWithTheSeedsThatTheyWant) {
  const Scratch scratch;
  const auto figure = report_of_pairs(scratch, {{90, 89}, {91, 89}, {92, 89}, {90, 88}});
  EXPECT_EQ(figure.at("id"), "differences");
  EXPECT_EQ(figure.at("title"), "Accuracy against ddp, seed by seed");
  const auto& row = figure.at("data").at(0);
  EXPECT_EQ(row.at("points"), "−2.0 ± 1.3");
  EXPECT_EQ(row.at("pairs"), "4");
  EXPECT_EQ(row.at("shown"), "worse");
  EXPECT_NEAR(row.at("deviation of a pair"), std::sqrt(2.0 / 3), 1e-9);
  EXPECT_EQ(row.at("seeds to show 0.3"), "31");
  EXPECT_EQ(row.at("seeds to show this"), "4");
}

TEST(Differences, OneInsideItsIntervalIsNone) {
  const Scratch scratch;
  const auto figure = report_of_pairs(scratch, {{90, 91}, {91, 90}, {90, 90.5}});  // 1, -1, 0.5
  EXPECT_EQ(figure.at("data").at(0).at("shown"), "no difference");
  const Scratch single;
  EXPECT_NE(report_of_pairs(single, {{90, 91}}).at("id"), "differences");
}

TEST(Differences, OfPairsThatAreAllAlikeHaveNoInterval) {
  const Scratch scratch;
  const auto figure = report_of_pairs(scratch, {{90, 89}, {91, 90}});
  const auto& row = figure.at("data").at(0);
  EXPECT_EQ(row.at("shown"), "all pairs alike: no interval");
  EXPECT_EQ(row.value("seeds to show this", nlohmann::json()), nlohmann::json());
  EXPECT_EQ(row.value("seeds to show 0.3", nlohmann::json()), nlohmann::json());
}

TEST(Origins, EndThePageWithBuildsMachinesAndSittingsThatDiffer) {
  const Scratch scratch;
  const auto record = [&](const std::string& commit, const std::string& sitting) {
    const std::string options = R"("options": {"strategy": "\"ddp\"", "seed": "3"}, "summary": {"accuracy": 0.5})";
    const std::string made = R"(, "processor": "Xeon", "versions": {"prunex": "0.1.0", "libtorch": "2.11.0"})";
    const auto timing = [](const std::string& name, const std::string& when) {
      return fmt::format(R"({{"name": "{}", "exchanges": {{"count": 0}}, "sitting": "{}"}})", name, when);
    };
    write_text(scratch / "runs/compare.json",
               R"({"pilots": [], "runs": [{"name": "a", "directory": "a/3", "commit": "c0ffee", )" + options + made +
                   R"(}, {"name": "b", "directory": "b/3", "commit": ")" + commit + "\", " + options + made +
                   "}], \"timings\": [" + timing("a", "monday") + ", " + timing("b", sitting) + "]}");
    return make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).html;
  };
  EXPECT_THAT(record("c0ffee", "monday"), Not(HasSubstr("Different builds")));
  EXPECT_THAT(record("c0ffee", "monday"), HasSubstr("commits c0ffee, LibTorch 2.11.0."));
  const auto html = record("decade", "tuesday");
  EXPECT_THAT(html, HasSubstr("<h3>Different builds, machines or sittings</h3>\n<ul><li>commit c0ffee, prunex 0.1.0, "
                              "LibTorch 2.11.0, on Xeon: a seed 3</li>\n<li>commit decade"));
  EXPECT_THAT(html, HasSubstr("<li>timed monday: a</li>\n<li>timed tuesday: b</li>"));
}

TEST(Origins, TellRunsWithoutATimingAndTimingsOfAnotherProcessor) {
  const Scratch scratch;
  const auto record = [&](const std::string& timings) {
    std::string runs;
    for (const char* name : {"a", "b"}) {
      runs +=
          fmt::format(R"({}{{"name": "{}", "directory": "{}/3", "processor": "Xeon", "summary": {{"accuracy": 1}}}})",
                      runs.empty() ? "" : ", ", name, name);
    }
    write_text(scratch / "runs/compare.json",
               R"({"pilots": [], "runs": [)" + runs + R"(], "timings": [)" + timings + "]}");
    return make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).html;
  };
  const auto timing = [](const std::string& name, const std::string& processor) {
    return fmt::format(R"({{"name": "{}", "exchanges": {{"count": 0}}, "sitting": "monday", "processor": "{}"}})", name,
                       processor);
  };
  const std::string title = "<h3>Different builds, machines or sittings</h3>\n<ul>";
  EXPECT_THAT(record(timing("a", "Xeon") + ", " + timing("b", "Xeon")), Not(HasSubstr(title)));
  EXPECT_THAT(record(timing("a", "Xeon")),
              HasSubstr(title + "<li>seconds from the runs themselves: b</li>\n<li>timed monday: a</li>"));
  EXPECT_THAT(record(timing("a", "EPYC") + ", " + timing("b", "EPYC")),
              HasSubstr(title + "<li>timed monday on EPYC: a, b</li>"));
}

TEST(Origins, NameGpusBesideTheProcessor) {
  const Scratch scratch;
  write_text(scratch / "runs/compare.json", R"({"pilots": [], "runs": [{"name": "a", "directory": "a/3",
    "processor": "Xeon", "options": {"strategy": "\"ddp\""},
    "summary": {"accuracy": 0.5, "precision": "bf16", "gpus": ["NVIDIA A100", "NVIDIA H100"]}}]})");
  EXPECT_THAT(make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).html,
              HasSubstr("Processor: Xeon, with NVIDIA A100 and NVIDIA H100. Arithmetic: bf16."));
}

}  // namespace
}  // namespace prunex::report
