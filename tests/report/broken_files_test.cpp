// What is wrong with a file is one line that names the file; lines and columns are counted by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "report/report.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tests::Scratch;
using tests::write_run;
using tests::write_text;

/// Of a run in which this file has this text.
Run run_with(const Scratch& scratch, const std::string& file, const std::string& text) {
  write_run(scratch / "a", {});
  write_text(scratch / ("a/" + file), text);
  return read_run(scratch / "a");
}

std::string problem_with(const std::string& file, const std::string& text) {
  const Scratch scratch;
  const auto problems = run_with(scratch, file, text).problems;
  if (problems.size() != 1) return std::to_string(problems.size()) + " problems";
  const std::string start = scratch / ("a/" + file) + ": ";
  return problems[0].starts_with(start) ? problems[0].substr(start.size()) : problems[0];
}

/// What find_runs throws; empty if nothing.
std::string refusal(const std::vector<std::string>& directories) {
  try {
    find_runs(directories);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const std::string& file, const std::string& text) {
  const Scratch scratch;
  write_text(scratch / "compare.json", R"({"pilots": [], "runs": []})");
  write_text(scratch / file, text);
  const std::string said = refusal({scratch.path()}), start = "report: " + (scratch / file) + ": ";
  return said.starts_with(start) ? said.substr(start.size()) : said;
}

TEST(BrokenFiles, ASummaryWithoutAccuracyIsNotThatOfAFinishedRun) {
  const std::pair<const char*, const char*> texts[] = {
      {"null", "accuracy: missing"},
      {"[]", "accuracy: missing"},
      {"{}", "accuracy: missing"},
      {R"({"accuracy": "high"})", "accuracy: type must be number, but is string"},
      {R"({"accuracy": 1, "gpus": [1]})", "gpus: type must be string, but is number"},
      {R"({"accuracy": null})", "accuracy: type must be number, but is null"},
      {R"({"accuracy": 1, "partition": {"class_counts": [[1], [2]]}, "accuracy_by_node": [1]})",
       "accuracy_by_node: got 1 of 2 nodes"},
      {R"({"accuracy": 1, "partition": {"class_counts": [["a"]]}, "accuracy_by_node": [1]})",
       "class_counts: entry 1: entry 1: got string, wanted a number"}};
  for (const auto& [text, problem] : texts) {
    const Scratch scratch;
    const auto run = run_with(scratch, "summary.json", text);
    EXPECT_FALSE(run.summary) << text;
    EXPECT_THAT(run.problems, ElementsAre(scratch / "a/summary.json: " + problem)) << text;
  }
}

TEST(BrokenFiles, ARecordedSummaryWithoutAccuracyIsNotThatOfAFinishedRun) {
  for (const char* summary : {"null", "3", R"({"nodes": 2})"}) {
    const Scratch scratch;
    write_text(
        scratch / "compare.json",
        std::string(R"({"pilots": [], "runs": [{"name": "a", "directory": "a/0", "state": "done", "summary": )") +
            summary + "}]}");
    const auto report = make_report(find_runs({scratch.path()}), {.command = "prunex report"});
    EXPECT_THAT(report.problems, ElementsAre(scratch / "compare.json: a/0: summary: accuracy: missing")) << summary;
    const auto task = nlohmann::json::parse(report.json).at("tasks").at(0);
    EXPECT_EQ(task.at("runs").at(0).at("state"), "0 exchanges, not finished") << summary;
  }
}

TEST(BrokenFiles, SyntaxErrorsHaveLineAndColumn) {
  for (const char* file : {"summary.json", "structure.json", "answers.json", "trace.json"}) {
    EXPECT_EQ(problem_with(file, "{\n  \"groups\": ]\n}"), "not valid JSON (line 2, column 13)") << file;
    EXPECT_EQ(problem_with(file, "{"), "not valid JSON (line 1, column 2)") << file;
    EXPECT_EQ(problem_with(file, ""), "not valid JSON (line 1, column 1)") << file;
    EXPECT_EQ(problem_with(file, std::string(200'000, '[')), "nested deeper than 100 levels (line 1, column 101)");
  }
  EXPECT_EQ(problem_with("metrics.jsonl", "{\"exchange\": 1}\n{\"exchange\" 2}\n{\"exchange\": 3}\n"),
            "not valid JSON (line 2, column 13)");
}

TEST(BrokenFiles, WrongTypesAreNamedByKey) {
  EXPECT_EQ(problem_with("metrics.jsonl", "{\"exchange\": 1}\n5\n"), "line 2: got number, wanted an object");
  EXPECT_EQ(problem_with("structure.json", "null"), "groups: missing");
  EXPECT_EQ(problem_with("structure.json", R"({"groups": 3})"), "groups: got number, wanted a list");
  EXPECT_EQ(problem_with("structure.json", R"({"groups": [{"name": "g", "size": 4, "kept": "all"}]})"),
            "groups: entry 1: kept: type must be array, but is string");
  EXPECT_EQ(problem_with("trace.json", R"({"traceEvents": [{"ph": "M"}, {"ph": "X", "name": "local"}]})"),
            "traceEvents: entry 2: pid: missing");
}

TEST(BrokenFiles, OfComparisonsAreRefusedByNameAndKey) {
  const std::pair<const char*, const char*> texts[] = {
      {"{\"runs\": ", "not valid JSON (line 1, column 10)"},
      {"null", "runs: missing"},
      {R"({"runs": 5, "pilots": "x"})", "runs: got number, wanted a list"},
      {R"({"runs": [], "pilots": "x"})", "pilots: got string, wanted a list"},
      {R"({"runs": []})", "pilots: missing"},
      {R"({"runs": ["x"], "pilots": []})", "runs: entry 1: directory: missing"},
      {R"({"runs": [{"name": "a", "directory": "a/0"}, {"name": "b"}], "pilots": []})",
       "runs: entry 2: directory: missing"},
      {R"({"runs": [{"directory": "a/0", "summary": {"accuracy": 1}}], "pilots": []})", "runs: entry 1: name: missing"},
      {R"({"runs": [{"name": "a", "directory": "a/0", "summary": {"accuracy": 1}, "options": {"lr": 1}}]})",
       "runs: entry 1: options: lr: type must be string, but is number"},
      {R"({"runs": [{"name": "a", "directory": "a/0", "summary": {"accuracy": 1}, "exchanges": {}}]})",
       "runs: entry 1: exchanges: key 'count' not found"},
      {R"({"runs": [], "pilots": [{"name": "a"}]})", "pilots: entry 1: rate: missing"},
      {R"({"runs": [], "pilots": [], "command": 1})", "command: type must be string, but is number"}};
  for (const auto& [text, problem] : texts) EXPECT_EQ(refusal_of("compare.json", text), problem) << text;
}

TEST(BrokenFiles, NumbersThatNoRunHasAreNamedByKey) {
  EXPECT_EQ(problem_with("metrics.jsonl", "{\"exchange\": 1}\n{\"samples\": 1e300}\n"),
            "line 2: samples: got 1e+300, wanted at most 2^53");
  EXPECT_EQ(problem_with("metrics.jsonl", "{\"macs\": 18446744073709551615}\n"),
            "line 1: macs: got 18446744073709551615, wanted at most 2^53");
  EXPECT_EQ(problem_with("structure.json", R"({"groups": [{"name": "g", "size": 1e12, "kept": []}]})"),
            "groups: entry 1: size: got 1000000000000, wanted 0 to 1000000");
  EXPECT_EQ(problem_with("structure.json", R"({"groups": [{"name": "g", "size": -1, "kept": []}]})"),
            "groups: entry 1: size: got -1, wanted 0 to 1000000");
  EXPECT_EQ(problem_with("answers.json", R"({"classes": ["a", "b"], "counts": [[0, 1, 5], [2, 0, 5]]})"),
            "counts: entry 2: got [2, 0, 5] of 2 classes");
  EXPECT_EQ(
      problem_with("answers.json", R"({"classes": ["a"], "counts": [], "mistakes": [{"label": 1, "answer": 0}]})"),
      "mistakes: entry 1: label: got 1 of 1 classes");
  EXPECT_EQ(problem_with("answers.json", R"({"classes": ["a"], "counts": [], "mistakes": [{"label": 0, "answer": 0,
              "confidence": 1, "png": "\"><script>"}]})"),
            "mistakes: entry 1: png: no base64");
  EXPECT_EQ(problem_with("answers.json", R"({"classes": ["a", "b"], "counts": [[0, 1]]})"),
            "counts: entry 1: got 2 numbers, wanted 3");
  EXPECT_EQ(problem_with("trace.json", R"({"traceEvents": [{"ph": "X", "name": "local", "pid": 1e99}]})"),
            "traceEvents: entry 1: pid: got 1e+99, wanted at most 2^53");
  EXPECT_EQ(problem_with("summary.json", R"({"accuracy": 1e9})"), "accuracy: got 1000000000, wanted 0 to 1");
  EXPECT_EQ(problem_with("summary.json", R"({"accuracy": 1, "buckets": [{"bytes": 4, "ready": 1.5}]})"),
            "buckets: entry 1: ready: got 1.5, wanted 0 to 1");
  EXPECT_EQ(problem_with("summary.json", R"({"accuracy": 1, "buckets": [{"bytes": 0, "ready": 1}]})"),
            "buckets: entry 1: bytes: got 0, wanted 1 to 2^53");
}

TEST(BrokenFiles, ThatAreTooLargeAreNotRead) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  for (const char* file : {"trace.json", "summary.json"}) {
    std::ofstream(scratch / (std::string("a/") + file));
    std::filesystem::resize_file(scratch / (std::string("a/") + file), 64'000'001);
  }
  const std::string wanted = ": got 64000001 bytes, wanted at most 64000000";
  EXPECT_THAT(read_run(scratch / "a").problems,
              ElementsAre(scratch / "a/summary.json" + wanted, scratch / "a/trace.json" + wanted));
  write_text(scratch / "b/metrics.jsonl", "{\"exchange\": 1}\n" + std::string(16'000'001, ' ') + "\n");
  EXPECT_THAT(read_run(scratch / "b").problems,
              ElementsAre(scratch / "b/metrics.jsonl: line 2: wanted at most 16000000 bytes in a line and 1000000 "
                                    "exchanges"));
}

TEST(BrokenFiles, ThatAreNoFilesAreNotWaitedFor) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  ASSERT_EQ(::mkfifo((scratch / "a/trace.json").c_str(), 0600), 0);
  EXPECT_THAT(read_run(scratch / "a").problems, ElementsAre(scratch / "a/trace.json: not a regular file"));
}

TEST(BrokenFiles, DeepNestingIsOneLine) {
  const std::string deep(200'000, '[');
  EXPECT_THAT(problem_with("summary.json", deep), Not(HasSubstr("\n")));
  EXPECT_THAT(problem_with("metrics.jsonl", deep + "\n"), StartsWith("nested deeper than 100 levels"));
  EXPECT_THAT(refusal_of("compare.json", deep), StartsWith("nested deeper than 100 levels"));
}

TEST(BrokenFiles, ARecordThatClaimsCountlessExchangesIsRefused) {
  for (const char* count : {"1e15", "-1", "1e300", "\"many\""}) {
    EXPECT_THAT(refusal_of("compare.json", std::string(R"({"pilots": [], "runs": [{"name": "a", "directory": "a/0",
                  "summary": {"accuracy": 1}, "exchanges": {"count": )") +
                                               count + "}}]}"),
                AllOf(StartsWith("runs: entry 1: exchanges: "), Not(HasSubstr("vector"))))
        << count;
  }
}

TEST(BrokenFiles, ARecordReadsOnlyBelowItself) {
  for (const char* place : {"../a", "/etc", "a/../../b"}) {
    EXPECT_EQ(refusal_of("compare.json",
                         fmt::format(R"({{"pilots": [], "runs": [{{"name": "a", "directory": "{}"}}]}})", place)),
              fmt::format("runs: entry 1: directory: got {}, wanted one below the comparison", place));
  }
}

TEST(BrokenFiles, ANumberOfWhichAFifthIsNoneIsDrawnAsZero) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  std::string metrics;
  for (int k = 1; k < 4; ++k) {
    metrics += fmt::format(
        R"({{"exchange": {0}, "step": {0}, "samples": {0}, "loss": 5e-324, "accuracy": 5e-324, "keep": 5e-324}})", k);
    metrics += "\n";
  }
  write_text(scratch / "a/metrics.jsonl", metrics);
  EXPECT_THAT(make_report(find_runs({scratch / "a"}), {}).html, HasSubstr("<svg"));
}

TEST(BrokenFiles, ExtremeNumbersAreDrawnOrLeftOut) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  std::string metrics;
  for (const char* number : {"1e308", "-1e308", "5e-324", "1e-300", "0"}) {
    metrics += fmt::format(
        R"({{"exchange": 9007199254740992, "step": 9007199254740992, "samples": 9007199254740992, )"
        R"("loss": {0}, "accuracy": {0}, "keep": {0}, "macs": 9007199254740992, "inter_node_bytes": 9007199254740992, )"
        R"("seconds": {{"local": {0}, "inter": {0}, "evaluate": {0}}}, "residuals": {{"r_intra": {0}, "s_inter": {0}}}}})",
        number);
    metrics += "\n";
  }
  write_text(scratch / "a/metrics.jsonl", metrics);
  EXPECT_THAT(make_report(find_runs({scratch.path()}), {.command = "x"}).html, HasSubstr("</html>"));
}

TEST(BrokenFiles, OfCheckedTimesAreRefusedByTheirOwnName) {
  EXPECT_EQ(refusal_of("verify.json", "[{}, 5]"), "entry 1: measured_seconds: missing");
  EXPECT_EQ(refusal_of("verify.json", "["), "not valid JSON (line 1, column 2)");
}

TEST(FindRuns, APilotWithoutItsAccuracyHasNone) {
  const Scratch scratch;
  write_run(scratch / "a/0", {});
  write_text(scratch / "compare.json", R"({"runs": [{"name": "a", "directory": "a/0"}],
    "pilots": [{"name": "a", "rate": 0.1, "summary": null}]})");
  EXPECT_FALSE(find_runs({scratch.path()}).pilots.at(0).accuracy);
}

TEST(FindRuns, FilesInPlaceOfDirectoriesAreCalledThat) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  EXPECT_EQ(refusal({scratch / "a/summary.json"}),
            "report: " + (scratch / "a/summary.json") + ": a file, wanted the directory of a run or of a comparison");
  EXPECT_THAT(refusal({scratch / "b"}), EndsWith("/b: no such directory"));
}

TEST(FindRuns, WhatWasNamedBeforeIsSaidOnlyOfRepetitions) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  std::filesystem::create_directory(scratch / "empty");
  const auto in_empty = AllOf(StartsWith("report: " + (scratch / "empty") + ": no run in it; wanted metrics.jsonl"),
                              Not(HasSubstr("before")));
  EXPECT_THAT(refusal({scratch / "empty"}), in_empty);
  EXPECT_THAT(refusal({scratch / "a", scratch / "empty"}), in_empty);
  EXPECT_THAT(refusal({scratch / "a", scratch / "a"}), HasSubstr("/a: no run in it that was not named before; wanted"));
}

}  // namespace
}  // namespace prunex::report
