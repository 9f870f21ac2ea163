// bench/time_to_accuracy.py on runs that are there, written by run_files.h: sums are by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using tests::Scratch;

Result time_to(const Scratch& scratch, const std::string& target, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"/usr/bin/env", "python3",     PRUNEX_SOURCE_DIR "/bench/time_to_accuracy.py",
                                 "--prunex",     PRUNEX_BINARY, "--target",
                                 target,         "--output",    "out",
                                 "--links",      "25",          "--rows",
                                 "ddp",          "hsadmm"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(scratch.path(), words);
}

/// Four exchanges of 3 s and of 1.5 s, the last with an accuracy of 90 %.
void write_runs(const Scratch& scratch) {
  tests::RunFiles run;
  run.options["strategy"] = "\"ddp\"";
  tests::write_run(scratch / "out/25/ddp", run);
  run.options["strategy"] = "\"hsadmm\"";
  run.local_seconds = 0.5;
  tests::write_run(scratch / "out/25/hsadmm", run);
}

TEST(TimeToAccuracy, AddsUpTheSecondsToTheFirstEvaluationAtTheTarget) {
  const Scratch scratch;
  write_runs(scratch);
  const Result result = time_to(scratch, "90");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("| Mbit/s | ms | row | s to 90 % |"));
  EXPECT_THAT(result.output, HasSubstr("\n| 25 | 0 | ddp | 12.0 | 1.00 | 20 | 4.00 | 90.00 % | 12.0 |\n"
                                       "| 25 | 0 | hsadmm | 6.0 | 2.00 | 20 | 4.00 | 90.00 % | 6.0 |\n"));
  const auto written = nlohmann::json::parse(tests::text_of(scratch / "out/result.json"));
  EXPECT_EQ(written.at("rows").at(0).at("bytes"), 4'000'000);
  EXPECT_NEAR(written.at("rows").at(1).at("curve").at(0).at(0), 6.0, 1e-12);
  EXPECT_THAT(tests::text_of(scratch / "out/accuracy.svg"), HasSubstr("hsadmm at 25 Mbit"));
}

TEST(TimeToAccuracy, ATargetThatNoRunReachesIsNotMadeUp) {
  const Scratch scratch;
  write_runs(scratch);
  const Result result = time_to(scratch, "90.1");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("| 25 | 0 | ddp | not reached | – | – | – | 90.00 % | 12.0 |"));
}

TEST(TimeToAccuracy, RefusesRowsAndRunsOfOtherOptions) {
  const Scratch scratch;
  EXPECT_EQ(time_to(scratch, "90", {"--lr", "dpp=0.1"}).status, 2);
  EXPECT_THAT(time_to(scratch, "90", {"--lr", "ddp"}).errors, HasSubstr("--lr: got 'ddp', wanted ROW=RATE"));
  EXPECT_THAT(time_to(scratch, "90", {"--links", "25:fast"}).errors,
              HasSubstr("--links: got '25:fast', wanted MBIT or"));
  write_runs(scratch);
  tests::write_text(scratch / "out/25/ddp.json", "[]");
  const Result result = time_to(scratch, "90");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("out/25/ddp was made with other options"));
}

TEST(Figure, OfAPageIsWrittenWithAllItsPlotsAndAnUnknownOneIsRefused) {
  const Scratch scratch;
  write_runs(scratch);
  ASSERT_EQ(time_to(scratch, "90").status, 0);
  const auto figure = [&](const std::string& id) {
    return run_program(scratch.path(), {"/usr/bin/env", "python3", PRUNEX_SOURCE_DIR "/bench/figure.py",
                                        "out/report.html", id, "figure.svg"});
  };
  const Result unknown = figure("accuracy");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("'accuracy' is no figure with a plot; wanted one of accuracy-time-0, "));
  EXPECT_FALSE(std::filesystem::exists(scratch / "figure.svg"));
  ASSERT_EQ(figure("residuals-0").status, 0);
  const std::string drawing = tests::text_of(scratch / "figure.svg");
  for (const char* part : {"r intra", "r inter", "s intra", "s inter", "hsadmm at 25 Mbit"}) {
    EXPECT_THAT(drawing, HasSubstr(part));
  }
}

}  // namespace
}  // namespace prunex::cli
