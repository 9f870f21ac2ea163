// Damaged records: each is drawn, or named in one line with its file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/report.h"
#include "tests/mutations.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::report {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tests::text_of;
using tests::write_text;

std::vector<std::string> damaged(const std::string& text) {
  return tests::damaged(text, 60, 10, 40);
}

/// Every problem of a run names its file; a page is made of what is left.
TEST(Damaged, FilesOfARunAreDrawnOrNamed) {
  const tests::Scratch scratch;
  tests::RunFiles run;
  run.partition = R"("accuracy_by_node":[0.5],"partition":{"rule":"classes:2","class_counts":[[5,7]]},)"
                  R"("buckets":[{"bytes":8,"ready":0.5}],)";
  tests::write_run(scratch / "a", run);
  write_text(scratch / "a/structure.json", R"({"groups": [{"name": "g", "size": 4, "kept": [0, 2]}]})");
  write_text(scratch / "a/trace.json", R"({"traceEvents": [{"ph": "X", "name": "local", "pid": 0, "tid": 0, "ts": 0,
    "dur": 2000, "args": {"exchange": 1}}]})");
  write_text(scratch / "a/answers.json", R"({"classes": ["cat", "dog"], "counts": [[0, 0, 7], [1, 0, 2]]})");
  for (const char* name :
       {"config.toml", "metrics.jsonl", "summary.json", "structure.json", "answers.json", "trace.json"}) {
    const std::string file = scratch / "a/" + name, whole = text_of(file);
    int n = 0;
    for (const auto& text : damaged(whole)) {
      write_text(file, text);
      const auto findings = find_runs({scratch.path()});
      for (const auto& problem : findings.runs.at(0).problems) {
        EXPECT_THAT(problem, AllOf(StartsWith(file + ": "), Not(HasSubstr("\n")))) << text;
      }
      if (n++ % 20 != 0) continue;
      EXPECT_FALSE(make_report(findings, {.command = "prunex report"}).html.empty());
    }
    write_text(file, whole);
  }
}

TEST(Damaged, RecordsOfComparisonsAreDrawnOrRefused) {
  const tests::Scratch scratch;
  tests::write_run(scratch / "a/0", {});
  write_text(scratch / "verify.json",
             R"([{"name": "a", "mbit": 100, "computed_seconds": 2, "measured_seconds": 3, "seed": 0}])");
  write_text(scratch / "compare.json", R"({"command": "prunex compare c.toml", "pilots": [{"name": "a", "rate": 0.1,
    "summary": {"validation_accuracy": 0.5}}], "timings": [], "runs": [{"name": "a", "seed": 0, "directory": "a/0",
    "state": "done", "options": {"strategy": "\"ddp\""}}, {"name": "b", "directory": "b/0", "state": "done",
    "options": {}, "summary": {"accuracy": 0.5, "nodes": 2, "seconds": {"local": 1, "total": 2}}}]})");
  for (const char* name : {"compare.json", "verify.json"}) {
    const std::string file = scratch / name, whole = text_of(file);
    for (const auto& text : damaged(whole)) {
      write_text(file, text);
      const auto said = tests::message([&] { make_report(find_runs({scratch.path()}), {.command = "prunex report"}); });
      EXPECT_THAT(said, AllOf(AnyOf("no exception", StartsWith("report: " + scratch.path())), Not(HasSubstr("\n"))))
          << text;
    }
    write_text(file, whole);
  }
}

}  // namespace
}  // namespace prunex::report
