// Pages are parsed by Python's XML parser, as strict a reader as any browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/format.h"
#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using tests::RunFiles;
using tests::Scratch;
using tests::write_run;
using tests::write_text;

/// Whether a script of this folder, with these arguments, has nothing against the page.
testing::AssertionResult passes(const Scratch& scratch, const std::string& script, const std::string& html) {
  write_text(scratch / "page.html", html);
  const std::string python = std::filesystem::exists(PRUNEX_TEST_PYTHON) ? PRUNEX_TEST_PYTHON : "python3";
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
  write_text(directory + "/answers.json", R"({"classes": ["cat", "<dog>", "x"], "top5_accuracy": 0.97,
    "mistakes": [{"image": 3, "label": 0, "answer": 1, "confidence": 0.5, "file": "a&b.jpg", "png": "iVBORw0KGgo="}],
    "counts": [[0, 0, 7], [0, 1, 2], [1, 0, 3], [1, 1, 1]]})");
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
  RunFiles again;
  for (RunFiles* run : {&again, &ddp}) {
    run->options["seed"] = "1";
    write_run(scratch / ("runs/1-" + run->options["strategy"].substr(1, 3)), *run);
  }
  const auto html = report_of(scratch);
  EXPECT_TRUE(is_well_formed(scratch, html));
  EXPECT_THAT(html, HasSubstr("<figure id=\"differences-0\">"));
  EXPECT_THAT(html, HasSubstr("among its first five 97.00 %"));
  EXPECT_THAT(html, HasSubstr("cat taken for &lt;dog&gt; a&amp;b.jpg"));
  EXPECT_THAT(html, HasSubstr("&lt;dog&gt; taken for cat: 75 %"));
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

TEST(Page, ShowsWhatNodesHadWhereTheyHadImagesOfTheirOwn) {
  const Scratch scratch;
  RunFiles run;
  write_run(scratch / "runs/even", run);
  EXPECT_THAT(report_of(scratch), Not(HasSubstr("Nodes with images of their own")));
  run.partition = R"("accuracy_by_node":[0.75,0.5],"partition":{"rule":"classes:2","class_counts":[[5,7,0],[0,0,9]]},)";
  run.options["partition"] = "\"classes:2\"";
  write_run(scratch / "runs/uneven", run);
  const auto report = make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"});
  EXPECT_TRUE(is_well_formed(scratch, report.html));
  EXPECT_THAT(report.html, HasSubstr("partition classes:2"));
  const auto json = nlohmann::json::parse(report.json);
  for (const auto& task : json.at("tasks")) {
    for (const auto& figure : task.at("figures")) {
      if (figure.at("id") != "nodes") continue;
      EXPECT_EQ(figure.at("data").size(), 2);
      EXPECT_EQ(figure.at("data").at(0).at("images"), 12);
      EXPECT_EQ(figure.at("data").at(0).at("by class"), "0: 5, 1: 7");
      EXPECT_EQ(figure.at("data").at(1).at("accuracy"), 0.5);
      return;
    }
  }
  FAIL() << "no table of the nodes";
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

TEST(Page, RatesThatWereTriedStayWithTheirComparisons) {
  const Scratch scratch;
  const auto pilot = [](const std::string& rate, const std::string& summary) {
    return R"({"name": "a", "rate": )" + rate + R"(, "summary": )" + summary + "}";
  };
  const auto compare = [&](const std::string& name, const std::string& accuracy) {
    const std::string known = R"({"validation_accuracy": )" + accuracy + "}";
    write_run(scratch / ("runs/" + name + "/a/0"), {});
    write_text(scratch / ("runs/" + name + "/compare.json"),
               R"({"runs": [{"name": "a", "directory": "a/0"}], "pilots": [)" + pilot("0.1", known) + ", " +
                   pilot("0.2", known) + ", " + pilot("0.2", "null") + "]}");
  };
  compare("one", "0.2");
  compare("two", "0.8");
  const auto report = make_report(find_runs({scratch / "runs"}), {.command = "x"});
  const auto rows = nlohmann::json::parse(report.json).at("pilots");
  ASSERT_EQ(rows.size(), 4);
  for (const size_t row : {0, 2}) {
    EXPECT_EQ(rows[row].at("learning rate"), 0.1);
    EXPECT_EQ(rows[row].at("comparison"), scratch / (row == 0 ? "runs/one" : "runs/two"));
    EXPECT_EQ(rows[row].at("held-out accuracy"), row == 0 ? "20.00 %" : "80.00 %");
    EXPECT_TRUE(rows[row + 1].at("held-out accuracy").is_null());  // a seed failed
  }
}

TEST(Page, VolumesNameTheRunWhoseStepsDdpWouldSend) {
  const Scratch scratch;
  RunFiles run;
  run.options["strategy"] = "\"diloco\"";
  write_run(scratch / "runs/first", run);
  EXPECT_THAT(report_of(scratch), HasSubstr("the steps of diloco, averaged"));
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
  for (const char* strategy : {"hsadmm", "ddp", "a_strategy_with_a_name_that_is_long_beyond_all_reason",
                               "<script>document.body.remove()</script>"}) {
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

TEST(Page, OfOneNodeHasNoFigureOfWhatItSent) {
  const Scratch scratch;
  RunFiles run;
  run.options["nodes"] = "1";
  run.inter_node_bytes = 0;
  write_run(scratch / "runs/a", run);
  const auto html = report_of(scratch);
  EXPECT_THAT(html, Not(HasSubstr("<figure id=\"accuracy-bytes")));
  EXPECT_THAT(html,
              testing::ContainsRegex("<li>Accuracy against bytes[^<]*: no run holds the data for this figure</li>"));
}

TEST(Page, LinesWithoutTheirFieldsAreNoErrors) {
  const Scratch scratch;
  write_text(scratch / "runs/a/metrics.jsonl", "{}\n{\"exchange\": 2, \"seconds\": null, \"loss\": null}\n");
  write_text(scratch / "runs/a/summary.json", R"({"accuracy": 0.5})");
  EXPECT_TRUE(is_well_formed(scratch, report_of(scratch)));
}

// Every string that a stranger's record can hold, with markup, a scheme, a control character and wrong UTF-8 in it.
TEST(Page, NothingInARecordBecomesMarkup) {
  const std::string evil = "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)> '\"&\x1b[2J\xff";
  const std::string word = nlohmann::json(evil).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const Scratch scratch;
  const std::string name = "javascript:alert(1)<script>\"'";
  RunFiles run;
  run.options["model"] = evil;
  run.options["strategy"] = evil;
  run.partition = "\"gpus\": [" + word + "],";
  write_run(scratch / ("runs/" + name + "/0"), run);
  write_text(scratch / ("runs/" + name + "/0/structure.json"),
             R"({"groups": [{"name": )" + word + R"(, "size": 4, "kept": [0, 3]}]})");
  write_text(scratch / ("runs/" + name + "/0/trace.json"), R"({"traceEvents": [{"ph": "X", "name": )" + word +
                                                               R"(, "pid": 0, "tid": 0, "ts": 0, "dur": 9e5,
                                                               "args": {"exchange": 3}}]})");
  write_text(scratch / "runs/compare.json",
             R"({"command": )" + word + R"(, "pilots": [{"name": )" + word + R"(, "rate": 0.1}], "runs": [{"name": )" +
                 word + R"(, "directory": )" + nlohmann::json(name + "/0").dump() + R"(, "processor": )" + word +
                 R"(, "commit": )" + word + R"(}, {"name": "b", "directory": "b", "state": "failed", "error": )" +
                 word + R"(}, {"name": "c", "directory": )" + word.substr(0, 9) + R"("}]})");
  const auto report = make_report(find_runs({scratch / "runs"}), {.command = evil, .date = evil, .version = evil});
  EXPECT_TRUE(is_well_formed(scratch, report.html));
  for (const char* markup : {"<script", "<img", "=\"javascript:", "\x1b"})
    EXPECT_THAT(report.html, Not(HasSubstr(markup)));
  EXPECT_THAT(report.html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(report.summary, Not(HasSubstr("\x1b")));
  EXPECT_TRUE(nlohmann::json::accept(report.json));
}

TEST(Page, LinksToTheRunsThatAreThere) {
  const Scratch scratch;
  write_run(scratch / "runs/a b:c/0", {});
  write_text(scratch / "runs/compare.json", R"({"pilots": [], "runs": [{"name": "a", "directory": "a b:c/0"},
    {"name": "gone", "directory": "gone/0", "state": "done", "summary": {"accuracy": 0.25}}]})");
  std::filesystem::create_directory(scratch / "pages");
  const auto html = make_report(find_runs({scratch / "runs"}), {.command = "x", .folder = scratch / "pages"}).html;
  EXPECT_TRUE(is_well_formed(scratch, html));
  EXPECT_THAT(html, HasSubstr("<a href=\"../runs/a%20b%3Ac/0/\">"));
  EXPECT_THAT(html, HasSubstr("<a href=\"../runs/\">"));
  EXPECT_THAT(html, HasSubstr("<td>" + (scratch / "runs/gone/0") + "</td>"));
}

TEST(Page, EndsWithWhenByWhatAndWithWhatIsMissing) {
  const Scratch scratch;
  RunFiles run;
  write_run(scratch / "runs/a", run);
  run.options["keep"] = "0.25";
  run.finished = false;
  write_run(scratch / "runs/b", run);
  const auto html =
      make_report(find_runs({scratch / "runs"}),
                  {.command = "prunex report runs", .date = "2026-01-02 03:04 UTC", .version = "9.8 (c0ffee)"})
          .html;
  const auto footer = html.substr(html.find("<footer>"));
  EXPECT_THAT(footer, HasSubstr("<li>not finished: hsadmm keep=0.25 (1 of 1)</li>"));
  EXPECT_THAT(footer, HasSubstr("<li>one finished seed, so no interval: hsadmm keep=0.5</li>"));
  EXPECT_THAT(footer, HasSubstr("<li>points against ddp: wanted a finished run of ddp</li>"));
  EXPECT_THAT(footer, HasSubstr("<p>Made 2026-01-02 03:04 UTC by prunex 9.8 (c0ffee); the runs by prunex 0.1.0. "
                                "<code>prunex report runs</code></p>"));
  EXPECT_THAT(html.substr(0, html.find("<footer>")), Not(HasSubstr("Missing")));
}

TEST(Page, ColoursSixRunsAndNamesTheOthersInTheTable) {
  const Scratch scratch;
  for (int i = 0; i < 9; ++i) {
    RunFiles run;
    run.options["keep"] = fmt::format("0.{}", i + 1);
    run.accuracy = 0.5 + 0.01 * i;
    write_run(scratch / fmt::format("runs/{}", i), run);
  }
  const auto html = report_of(scratch);
  EXPECT_TRUE(is_well_formed(scratch, html));
  const auto begin = html.find("<figure id=\"loss-0\"");
  const auto figure = html.substr(begin, html.find("</figure>", begin) - begin);
  const auto drawing = figure.substr(0, figure.find("<details>"));
  for (int style = 0; style < 6; ++style) EXPECT_THAT(drawing, HasSubstr(fmt::format("class=\"l s{}\"", style)));
  EXPECT_THAT(drawing, Not(HasSubstr("class=\"l s6\"")));
  EXPECT_THAT(drawing, HasSubstr("3 others, named in the table"));
  for (int i = 0; i < 9; ++i) EXPECT_THAT(figure, HasSubstr(fmt::format("<td>hsadmm keep=0.{}</td>", i + 1)));
}

TEST(Page, PhasesHavePlainNames) {
  const Scratch scratch;
  write_run(scratch / "runs/a", {});
  write_everything(scratch / "runs/a");
  const auto html = report_of(scratch);
  const auto timeline = html.substr(html.find("<figure id=\"timeline-0\""));
  EXPECT_THAT(timeline, HasSubstr("local steps: 900 ms"));
  EXPECT_THAT(timeline, HasSubstr("between nodes: 200 ms"));
  for (const char* name : {">local<", ">intra<", ">inter<", ">dual<"}) EXPECT_THAT(html, Not(HasSubstr(name)));
}

TEST(Page, TheSummaryForATerminalFitsInAHundredColumns) {
  const Scratch scratch;
  for (const char* strategy : {"hsadmm", "ddp", "a_strategy_with_a_name_that_is_long_beyond_all_reason"}) {
    for (const char* seed : {"0", "1"}) {
      RunFiles run;
      run.options["strategy"] = strategy;
      run.options["seed"] = seed;
      run.accuracy = seed[0] == '0' ? 0.9 : 0.95;
      write_run(scratch / fmt::format("runs/{}-{}", strategy, seed), run);
    }
  }
  const auto summary = make_report(find_runs({scratch / "runs"}), {.command = "prunex report runs"}).summary;
  std::istringstream lines(summary);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 100U) << line;
  EXPECT_THAT(summary, HasSubstr("\nBest test accuracy: "));
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
