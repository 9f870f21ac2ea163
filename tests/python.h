// Python scripts as oracles: PyTorch's own answer to what a C++ test computes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace prunex::tests {

struct PythonResult {
  int status = 0;        ///< of the script's process
  std::string output;    ///< standard output and error
  bool missing = false;  ///< there is no interpreter that can import torch and torchvision
};

/// Runs a script (its path within the source tree) with arguments, single-threaded, by tests/run_python.py.
inline PythonResult run_python(const std::string& script, const std::vector<std::string>& arguments) {
  constexpr int kCannotImport = 77;
  if (!std::filesystem::exists(PRUNEX_PYTHON)) return {0, "no interpreter " PRUNEX_PYTHON, true};
  auto command = fmt::format("OMP_NUM_THREADS=1 '{}' '{}/tests/run_python.py' '{}/{}'", PRUNEX_PYTHON,
                             PRUNEX_SOURCE_DIR, PRUNEX_SOURCE_DIR, script);
  for (const auto& argument : arguments) command += fmt::format(" '{}'", argument);
  command += " 2>&1";
  PythonResult result;
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t bytes = ::fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, bytes);
  result.status = WEXITSTATUS(::pclose(pipe));
  result.missing = result.status == kCannotImport;
  return result;
}

}  // namespace prunex::tests

/// Runs a script like run_python(). The test fails with its output if it fails; without Python the test is skipped, or
/// fails where the environment variable PRUNEX_NO_SKIP is set. In the test's own function only.
#define PRUNEX_RUN_PYTHON(script, ...)                                                      \
  do {                                                                                      \
    const auto result = ::prunex::tests::run_python(script, {__VA_ARGS__});                 \
    if (result.missing && !std::getenv("PRUNEX_NO_SKIP")) GTEST_SKIP() << result.output;    \
    ASSERT_TRUE(!result.missing && result.status == 0) << script << ":\n" << result.output; \
  } while (false)
