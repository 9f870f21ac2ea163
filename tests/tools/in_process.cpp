#include "tests/tools/in_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tools/prunex/command_line.h"

namespace prunex::tools {

using testing::HasSubstr;
using testing::StartsWith;

Result run(const Words& words) {
  std::vector<std::string> all{"prunex"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (auto& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_command_line(static_cast<int>(all.size()), argv.data());
  const std::string output = testing::internal::GetCapturedStdout();
  return {status, output, testing::internal::GetCapturedStderr()};
}

std::unique_ptr<CLI::App> app() {
  static int status = 0;
  return make_app(nullptr, status);
}

Words command_line(const std::string& command) {
  if (command == "train") {
    return {"train", "--check",     "--quiet", "--samples",     "40", "--model", "resnet8", "--batch-size",
            "10",    "--exchanges", "1",       "--local-steps", "1"};
  }
  if (command == "bench") return {"bench", "all_reduce", "-e", "64K", "-b", "64K"};
  if (command == "graph") return {"graph", "--model", "resnet8"};
  if (command == "eval") return {"eval", "--model", "none.pt2"};
  if (command == "predict") return {"predict", "--model", "none.pt2", "--input", "in", "--output", "out"};
  if (command == "prune") return {"prune", "--model", "resnet8", "--output", "none/out"};
  if (command == "compare") return {"compare", "none.toml"};
  if (command == "plan") return {"plan", "--from", "none"};
  return {"report", "none"};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words without(Words words, const std::string& option) {
  const auto found = std::find(words.begin(), words.end(), option);
  if (found != words.end()) words.erase(found, found + 2);
  return words;
}

void refused(const Words& words, const Words& named) {
  SCOPED_TRACE(testing::PrintToString(words));
  const Result result = run(words);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, StartsWith("prunex: "));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  for (const auto& word : named) EXPECT_THAT(result.errors, HasSubstr(word));
}

}  // namespace prunex::tools
