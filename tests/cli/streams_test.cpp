// Standard output and error that are closed, full or not read: progress never ends a run, and a result that does not
// arrive is an error. /dev/full takes nothing, as a full disk does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;
using tests::text_of;

/// prunex with these arguments, its streams redirected as a shell does it.
Result run_with(const std::string& directory, const std::string& redirection,
                const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/bin/sh", "-c", "\"$@\" " + redirection, "sh"};
  for (const auto& word : prunex(arguments)) words.push_back(word);
  return run_program(directory, words);
}

/// 8 exchanges of a step on two ranks: more lines than fit through a pipe that is closed after the first.
std::vector<std::string> short_run(const std::string& directory) {
  return {"train",   "--samples",    "32", "--model", "resnet8", "--precision",   "fp32", "--batch-size",
          "8",       "--exchanges",  "8",  "--nodes", "2",       "--local-steps", "1",    "--run-dir",
          directory, "--eval-every", "0"};
}

void expect_whole(const std::string& directory) {
  EXPECT_EQ(json::parse(text_of(directory + "/summary.json"))["exchanges"], 8);
  EXPECT_TRUE(std::filesystem::exists(directory + "/model.pt2"));
  std::istringstream lines(text_of(directory + "/metrics.jsonl"));
  int64_t exchanges = 0;
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(json::parse(line)["exchange"], ++exchanges);
}

TEST(StandardError, MayBeClosedFullOrUnreadWhileATrainingGoesOn) {
  const tests::Scratch scratch;
  const std::vector<std::string> redirections{"2>/dev/full", "2>&1 | head -1", "0>&- 1>&- 2>&-"};
  for (size_t i = 0; i < redirections.size(); ++i) {
    SCOPED_TRACE(redirections[i]);
    const std::string directory = "run" + std::to_string(i);
    EXPECT_EQ(run_with(scratch.path(), redirections[i], short_run(directory)).status, 0);
    expect_whole(scratch / directory);
  }
}

TEST(Files, BeyondTheLimitOfTheShellAreAnErrorThatNamesThem) {
  const tests::Scratch scratch;
  const std::vector<std::string> words{"/bin/bash", "-c", "ulimit -f 1; exec \"$@\"", "bash"};
  for (const auto& [arguments, file] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"graph", "--model", "resnet8", "--save", "net.pt2"}, "net.pt2"},
           {{"prune", "--model", "resnet8", "--ratio", "0.5", "--output", "small"}, "small/model.pt2"}}) {
    auto command = words;
    for (const auto& word : prunex(arguments)) command.push_back(word);
    const Result result = run_program(scratch.path(), command);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.errors, "prunex: cannot write " + file + ": File too large\n");
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  }
}

TEST(StandardError, MayBeClosedWhereAnErrorIsToBeSaid) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "none.pt2") << "no program";
  for (const char* redirection : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(run_with(".", redirection, {"train", "--keep", "7"}).status, 2) << redirection;
    EXPECT_EQ(run_with(scratch.path(), redirection, {"graph", "--model", "none.pt2"}).status, 1) << redirection;
  }
}

void expect_error_about_output(const std::string& directory, const std::string& redirection,
                               const std::vector<std::string>& arguments) {
  SCOPED_TRACE(testing::PrintToString(arguments) + redirection);
  const Result result = run_with(directory, redirection, arguments);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, StartsWith("prunex: cannot write standard output: "));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
}

TEST(StandardOutput, ThatTakesNothingIsAnErrorWhereItIsTheResult) {
  const tests::Scratch scratch;
  ASSERT_EQ(run_with(scratch.path(), "", short_run("run")).status, 0);
  for (const char* redirection : {">/dev/full", ">&-"}) {
    expect_error_about_output(scratch.path(), redirection, {"--help"});
    expect_error_about_output(scratch.path(), redirection, {"graph", "--model", "resnet8"});
  }
  expect_error_about_output(scratch.path(), ">/dev/full", {"report", "run"});
  expect_error_about_output(scratch.path(), ">/dev/full", {"train", "--help"});
  expect_error_about_output(scratch.path(), ">/dev/full",
                            {"bench", "all_reduce", "--nodes", "2", "-b", "4", "-e", "64"});
  expect_error_about_output(scratch.path(), ">/dev/full", {"eval", "--model", "run/model.pt2", "--samples", "32"});
  expect_error_about_output(scratch.path(), ">/dev/full",
                            {"prune", "--model", "resnet8", "--ratio", "0.5", "--output", "small"});
}

// Exit code 1 would say so much, but not what is broken.
TEST(StandardOutput, ThatTakesNothingIsSaidOfACheckThatFails) {
  const tests::Scratch scratch;
  std::filesystem::create_directories(scratch / "set/ant");
  std::ofstream(scratch / "set/ant/0.jpg") << "<html>";
  for (const char* redirection : {">/dev/full", ">&-"}) {
    expect_error_about_output(scratch.path(), redirection, {"data", "check", "set"});
  }
}

TEST(StandardOutput, OfATrainingMayBeFullBecauseItsResultsAreInFiles) {
  const tests::Scratch scratch;
  const Result result = run_with(scratch.path(), ">/dev/full", short_run("run"));
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("prunex: warning: cannot write standard output: No space left on device; "));
  expect_whole(scratch / "run");
}

}  // namespace
}  // namespace prunex::cli
