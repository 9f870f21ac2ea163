// What a run says on standard error, which is no terminal here.
#include "prunex/train/run/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

namespace prunex::train {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

Summary two_nodes() {
  return {.model = "resnet8",
          .precision = "bf16",
          .shape = comm::Layout::even(2, 1),
          .local_steps = 50,
          .parameters_dense = 1000};
}

Metrics after_exchange(int64_t exchange, std::optional<double> accuracy) {
  Metrics metrics{.loss = 1.5, .accuracy = accuracy};
  metrics.exchange.index = exchange;
  metrics.exchange.keep = 0.5;
  metrics.bytes.inter_node = 1000;
  return metrics;
}

/// Start, two exchanges of four, the first with an accuracy, end.
std::vector<std::string> lines_of_a_run(LogForm form, bool quiet = false) {
  testing::internal::CaptureStderr();
  Progress progress(two_nodes(), 4, form, quiet);
  progress.start("runs/a");
  progress.report(after_exchange(1, 0.25), 10, 100);
  progress.report(after_exchange(2, std::nullopt), 20, 100);
  progress.finish();
  progress.done();
  std::istringstream text(testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(RunProgress, BeginsWithWhatIsTrainedAndEndsWithWhereItIs) {
  const auto lines = lines_of_a_run(LogForm::kPlain);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0],
            "resnet8: 1000 parameters, 2 nodes x 1 ranks, 4 exchanges of 50 steps, bf16, run directory runs/a");
  EXPECT_THAT(lines[3], AllOf(HasSubstr("runs/a/model.pt2"), HasSubstr("prunex report runs/a")));
}

TEST(RunProgress, ShowsAccuracyWhereItWasMeasuredOnly) {
  const auto lines = lines_of_a_run(LogForm::kPlain);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(
      lines[1],
      "exchange 1/4  loss 1.5000  accuracy 25.00 %  kept 50 %  100 samples/s  0.00 MB sent, 75 % saved  0:30 left");
  EXPECT_THAT(lines[2], AllOf(HasSubstr("exchange 2/4"), Not(HasSubstr("accuracy"))));
}

/// What a terminal of so many columns gets of two exchanges of four, the second with an accuracy: what follows each
/// return to the start of the row.
std::vector<std::string> rows_on_a_terminal(unsigned short columns) {
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1, behind = -1;
  EXPECT_EQ(openpty(&terminal, &behind, nullptr, nullptr, &size), 0);
  const int before = dup(STDERR_FILENO);
  dup2(behind, STDERR_FILENO);
  Progress progress(two_nodes(), 4, LogForm::kPlain, false);
  progress.report(after_exchange(1, std::nullopt), 10, 100);
  progress.report(after_exchange(2, 0.25), 20, 100);
  dup2(before, STDERR_FILENO);
  for (const int file : {behind, before}) close(file);
  std::string text;
  std::array<char, 4096> piece;
  // A terminal hands on what was written in as many pieces as it likes; after the last one stands an error.
  for (ssize_t got = 0; (got = read(terminal, piece.data(), piece.size())) > 0;) text.append(piece.data(), got);
  close(terminal);
  std::vector<std::string> rows;
  const std::string kStart = "\r\033[K";
  for (size_t at = text.find(kStart); at != std::string::npos;) {
    const size_t begin = at + kStart.size();
    at = text.find(kStart, begin);
    rows.push_back(text.substr(begin, std::min(at, text.find_first_of("\r\n", begin)) - begin));
  }
  return rows;
}

TEST(RunProgress, StaysWithinARowOfTheTerminalUntilItIsLeft) {
  const std::string bar = "[=====               ] ", whole = "exchange 1/4  loss 1.5000  kept 50 %  100 samples/s  ";
  const std::string stays =
      "[==========          ] exchange 2/4  loss 1.5000  accuracy 25.00 %  kept 50 %  100 samples/s  "
      "0.00 MB sent, 75 % saved  0:20 left";
  using testing::ElementsAre;
  EXPECT_THAT(rows_on_a_terminal(200), ElementsAre(bar + whole + "0.00 MB sent, 75 % saved  0:30 left", stays));
  EXPECT_THAT(rows_on_a_terminal(0), ElementsAre(bar + whole + "0.00 MB sent, 75 % saved  0:30 left", stays));
  EXPECT_THAT(rows_on_a_terminal(80), ElementsAre(bar + "exchange 1/4  loss 1.5000  kept 50 %  0:30 left", stays));
  EXPECT_THAT(rows_on_a_terminal(40), ElementsAre(bar + "exchange 1/4  0:", stays));
}

TEST(RunProgress, SaysAfterWhichExchangeItGoesOn) {
  Summary run = two_nodes();
  run.exchanges = 3;
  testing::internal::CaptureStderr();
  Progress(run, 4, LogForm::kPlain, false).start("runs/a");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("going on after exchange 3"));
}

TEST(RunProgress, BeginsLinesWithTheTimeOnRequest) {
  for (const auto& line : lines_of_a_run(LogForm::kTimestamps)) {
    EXPECT_THAT(line, MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z .+"));
  }
}

TEST(RunProgress, WritesObjectsOnRequest) {
  const auto lines = lines_of_a_run(LogForm::kJson);
  ASSERT_EQ(lines.size(), 4);
  const json start = json::parse(lines[0]), first = json::parse(lines[1]), second = json::parse(lines[2]),
             end = json::parse(lines[3]);
  EXPECT_EQ(start["event"], "start");
  EXPECT_EQ(start["parameters"], 1000);
  EXPECT_EQ(start["precision"], "bf16");
  EXPECT_EQ(first["event"], "exchange");
  EXPECT_EQ(first["accuracy"], 0.25);
  EXPECT_EQ(first["seconds_left"], 30);
  EXPECT_FALSE(second.contains("accuracy"));
  EXPECT_EQ(end["event"], "end");
  EXPECT_EQ(end["model"], "runs/a/model.pt2");
}

TEST(RunProgress, WritesObjectsOfAPathThatIsNotUtf8) {
  testing::internal::CaptureStderr();
  Progress(two_nodes(), 4, LogForm::kJson, false).start("runs/\xff");
  EXPECT_TRUE(json::accept(testing::internal::GetCapturedStderr()));
}

TEST(RunProgress, SaysNothingIfQuiet) {
  for (const LogForm form : {LogForm::kPlain, LogForm::kTimestamps, LogForm::kJson}) {
    EXPECT_THAT(lines_of_a_run(form, true), IsEmpty());
  }
}

}  // namespace
}  // namespace prunex::train
