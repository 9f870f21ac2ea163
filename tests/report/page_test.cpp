// Pages are parsed by Python's XML parser, as strict a reader as any browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

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

/// Whether a script of this folder, with these arguments, has nothing against the page.
testing::AssertionResult passes(const Scratch& scratch, const std::string& script, const std::string& html) {
  write_text(scratch / "page.html", html);
  const std::string python = std::filesystem::exists(PRUNEX_PYTHON) ? PRUNEX_PYTHON : "python3";
  const std::string command = "'" + python + "' '" PRUNEX_SOURCE_DIR "/tests/report/'" + script + " '" +
                              (scratch / "page.html") + "' >'" + (scratch / "log") + "' 2>&1";
  if (::system(command.c_str()) == 0) return testing::AssertionSuccess();
  std::ifstream log(scratch / "log");
  return testing::AssertionFailure() << std::string(std::istreambuf_iterator<char>(log), {});
}

testing::AssertionResult is_well_formed(const Scratch& scratch, const std::string& html) {
  return passes(scratch, "check_page.py", html);
}

std::string report_of(const Scratch& scratch) {
  return make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).html;
}

void write_everything(const std::string& directory) {
  write_text(directory + "/structure.json", R"({"groups": [{"name": "layer1.0.conv1", "size": 4, "kept": [0, 3]}]})");
  write_text(directory + "/trace.json", R"({"traceEvents": [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0},
    {"name": "local", "ph": "X", "pid": 0, "tid": 0, "ts": 0, "dur": 9e5, "args": {"exchange": 3, "bytes": 0}},
    {"name": "inter", "ph": "X", "pid": 1, "tid": 1, "ts": 9e5, "dur": 2e5, "args": {"exchange": 3, "bytes": 8}}]})");
}

TEST(Page, IsWellFormedAndSelfContained) {
  const Scratch scratch;
  write_run(scratch / "runs/a", {});
  write_everything(scratch / "runs/a");
  RunFiles ddp;
  ddp.options["strategy"] = "\"ddp\"";
  ddp.accuracy = 0.93;
  write_run(scratch / "runs/b", ddp);
  EXPECT_TRUE(is_well_formed(scratch, report_of(scratch)));
}

TEST(Page, EveryPlotHasItsTableAndTellsTheRangeOfTheSeeds) {
  const Scratch scratch;
  RunFiles run;
  write_run(scratch / "runs/a", run);
  run.options["seed"] = "1";
  run.inter_node_bytes = 3000000;
  write_run(scratch / "runs/b", run);
  run.options["ranks-per-node"] = "2";
  write_run(scratch / "runs/c", run);
  const auto findings = find_runs({scratch / "runs"});
  const auto report = make_report(findings, {.command = "prunex report runs"});
  EXPECT_TRUE(is_well_formed(scratch, report.html));
  const auto json = nlohmann::json::parse(report.json);
  const auto data = [&](const std::string& id) {
    for (const auto& figure : json.at("tasks").at(0).at("figures")) {
      if (figure.at("id") == id) return figure.at("data");
    }
    return nlohmann::json();
  };
  const auto volume = data("volumes").at(0);
  EXPECT_EQ(volume.at("bytes between nodes, whole run"), 8e6);
  EXPECT_EQ(volume.at("lowest"), 4e6);
  EXPECT_EQ(volume.at("highest"), 12e6);
  const auto parts = data("breakdown").at(0);
  EXPECT_NEAR(parts.at("together"), 0.1 + 0.2 + 0.3 + 0.4, 1e-12);
  EXPECT_EQ(parts.at("lowest"), parts.at("highest"));
  const auto has = [&](const std::string& id, const std::string& column) {
    const auto rows = data(id);
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.contains(column); });
  };
  for (const char* kind : {"primal, in the nodes: r intra", "dual, between nodes: s inter"}) {
    EXPECT_TRUE(has("residuals", kind)) << kind;
  }
  EXPECT_TRUE(has("messages", "units whose mask changed"));
  EXPECT_TRUE(has("scaling", "efficiency"));
}

TEST(Page, OfAComparisonStatesItsCommand) {
  const Scratch scratch;
  write_run(scratch / "runs/a/0", {});
  write_text(scratch / "runs/compare.json", R"({"command": "prunex compare c.toml", "pilots":
    [{"name": "a", "rate": 0.1, "summary": {"validation_accuracy": 0.5}}], "runs": [{"name": "a", "directory": "a/0"}]})");
  const auto html = report_of(scratch);
  EXPECT_TRUE(is_well_formed(scratch, html));
  EXPECT_THAT(html, HasSubstr("<p>Runs made by <code>prunex compare c.toml</code></p>"));
}

/// Empty if there is none.
std::string find_browser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

TEST(Page, OpensInABrowserWithoutFaults) {
  const std::string browser = find_browser();
  if (browser.empty() && std::getenv("PRUNEX_NO_SKIP") == nullptr) GTEST_SKIP() << "no Chromium";
  const Scratch scratch;
  RunFiles run;
  for (const char* strategy : {"hsadmm", "ddp", "a_strategy_with_a_name_that_is_long_beyond_all_reason"}) {
    run.options["strategy"] = strategy;
    for (const char* seed : {"0", "1"}) {
      run.options["seed"] = seed;
      run.inter_node_bytes *= 5;
      const std::string directory = scratch / ("runs/" + run.options["strategy"] + "/" + seed);
      write_run(directory, run);
      write_everything(directory);
    }
  }
  run.options["ranks-per-node"] = "2";
  write_run(scratch / "runs/wide", run);
  EXPECT_TRUE(passes(scratch, "open_in_browser.py '" + browser + "'", report_of(scratch)));
}

TEST(Page, SaysWhatIsMissingWhereARunHoldsNothing) {
  const Scratch scratch;
  write_text(scratch / "runs/a/metrics.jsonl", "");
  const auto html = report_of(scratch);
  EXPECT_TRUE(is_well_formed(scratch, html));
  EXPECT_THAT(html, HasSubstr("<h3>Missing</h3>\n<ul><li>not finished: a (1 of 1)</li>"));
  EXPECT_THAT(html, HasSubstr("Training loss against time, "));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Page, LinesWithoutTheirFieldsAreNoErrors) {
  const Scratch scratch;
  write_text(scratch / "runs/a/metrics.jsonl", "{}\n{\"exchange\": 2, \"seconds\": null, \"loss\": null}\n");
  write_text(scratch / "runs/a/summary.json", R"({"accuracy": 0.5})");
  EXPECT_TRUE(is_well_formed(scratch, report_of(scratch)));
}

TEST(Page, NamesWithSignsOfMarkupAreEscaped) {
  const Scratch scratch;
  RunFiles run;
  run.options["model"] = "\"<script>&'x'.pt2\"";
  write_run(scratch / "runs/a", run);
  const auto html = report_of(scratch);
  EXPECT_TRUE(is_well_formed(scratch, html));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
}

TEST(Page, BrokenFilesAreListed) {
  const Scratch scratch;
  write_run(scratch / "runs/a", {});
  write_text(scratch / "runs/a/summary.json", "{");
  const auto report = make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"});
  EXPECT_THAT(report.problems, testing::SizeIs(1));
  EXPECT_TRUE(is_well_formed(scratch, report.html));
  EXPECT_THAT(report.html, HasSubstr("a/summary.json"));
}

TEST(Page, TheNumbersOfTheTablesAreInTheJson) {
  const Scratch scratch;
  write_run(scratch / "runs/a", {});
  const auto json =
      nlohmann::json::parse(make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).json);
  const auto& row = json.at("tasks").at(0).at("summary").at(0);
  EXPECT_DOUBLE_EQ(row.at("bytes per image"), 4e6 / 400);  // 4 exchanges of 1 MB, 400 images
  EXPECT_DOUBLE_EQ(row.at("times fewer than DDP"), 100);   // run_files.h
  EXPECT_DOUBLE_EQ(row.at("s measured"), 4 * (2 + 0.1 + 0.2 + 0.3 + 0.4));
  // 4 x (2 + 0.7) s of computing, 32 Mbit, and 4 exchanges of two messages of 0.1 ms
  EXPECT_NEAR(row.at("s at 100 Mbit/s"), 10.8 + 0.32 + 0.0008, 1e-9);
  EXPECT_GE(json.at("tasks").at(0).at("figures").size(), 18U);
}

TEST(Page, ADifferenceThatIsTheSameForAllSeedsHasNoInterval) {
  const Scratch scratch;
  const std::pair<double, double> accuracies[] = {{0.0, 0.07}, {0.5, 0.57}};  // seven points, and rounding
  for (int seed = 0; seed < 2; ++seed) {
    RunFiles run;
    run.options["seed"] = std::to_string(seed);
    run.accuracy = accuracies[seed].second;
    write_run(scratch / fmt::format("runs/a-{}", seed), run);
    run.options["strategy"] = "\"ddp\"";
    run.accuracy = accuracies[seed].first;
    write_run(scratch / fmt::format("runs/ddp-{}", seed), run);
  }
  const auto json =
      nlohmann::json::parse(make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).json);
  EXPECT_EQ(json.at("tasks").at(0).at("summary").at(0).at("points against ddp"), "+7");
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(Page, StatesTheWholeCommandOnce) {
  const Scratch scratch;
  RunFiles run;
  run.options["warmup-epochs"] = "0.5";
  run.options["dgc"] = "false";
  run.options["mask-rule"] = "\"auto\"";
  run.options["data-dir"] = "\"elsewhere\"";
  for (const char* seed : {"0", "1"}) {
    run.options["seed"] = seed;
    write_run(scratch / ("runs/" + run.options["seed"]), run);
  }
  const auto html = report_of(scratch);
  EXPECT_EQ(count(html, "prunex train"), 1U);
  EXPECT_THAT(html, HasSubstr("<code>prunex train --dataset synthetic --model resnet8 --nodes 2 --ranks-per-node 1 "
                              "--strategy hsadmm --batch-size 10 --keep 0.5 --warmup-epochs 0.5</code>"));
}

}  // namespace
}  // namespace prunex::report
