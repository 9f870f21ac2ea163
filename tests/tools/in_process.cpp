#include "tests/tools/in_process.h"

#include <gtest/gtest.h>

#include "tools/prunex/command_line.h"

namespace prunex::tools {

Result run(const std::vector<std::string>& words) {
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

}  // namespace prunex::tools
