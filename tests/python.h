// Python scripts as oracles: PyTorch's own answer to what a C++ test computes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace prunex::tests {

struct PythonResult {
  int status = 0;        ///< of the script's process
  std::string output;    ///< standard output and error
  bool missing = false;  ///< there is no interpreter that can import torch and torchvision
};

/// tests/run_python.py, which this program starts with the first script and which ends with the program.
class PythonServer {
 public:
  static PythonServer& instance() {
    static PythonServer server;
    return server;
  }

  PythonResult run(const std::string& script, const std::vector<std::string>& arguments) {
    const auto question = nlohmann::json{{"script", script}, {"arguments", arguments}}.dump() + "\n";
    if (::send(socket_, question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size()))
      return {1, "tests/run_python.py has ended"};
    std::string answer;
    char buffer[4096];
    while (answer.empty() || answer.back() != '\n') {
      const auto bytes = ::read(socket_, buffer, sizeof buffer);
      if (bytes <= 0) return {1, "tests/run_python.py ended with " + script};
      answer.append(buffer, static_cast<size_t>(bytes));
    }
    const auto result = nlohmann::json::parse(answer);
    const int status = result["status"];
    return {status, result["output"], status == kCannotImport};
  }

 private:
  static constexpr int kCannotImport = 77;

  PythonServer() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    if (::fork() == 0) {
      ::dup2(ends[1], STDIN_FILENO);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::execl(PRUNEX_TEST_PYTHON, PRUNEX_TEST_PYTHON, PRUNEX_SOURCE_DIR "/tests/run_python.py", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }

  int socket_ = -1;
};

/// Runs a script (its path within the source tree) with arguments, single-threaded, by tests/run_python.py.
inline PythonResult run_python(const std::string& script, const std::vector<std::string>& arguments) {
  if (!std::filesystem::exists(PRUNEX_TEST_PYTHON)) return {0, "no interpreter " PRUNEX_TEST_PYTHON, true};
  return PythonServer::instance().run(PRUNEX_SOURCE_DIR "/" + script, arguments);
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
