// The command line without a process of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace prunex::tools {

struct Result {
  int status = 0;
  std::string output, errors;
};

using Words = std::vector<std::string>;

/// prunex with these words.
Result run(const Words& words);

/// The application, for a look at its options.
std::unique_ptr<CLI::App> app();

/// A command line of every command that is quick, or fails in another way, where a wrong option is not refused.
Words command_line(const std::string& command);
Words with(Words words, const Words& more);
/// Without the option that the wrong one stands for: some may be there once only.
Words without(Words words, const std::string& option);

/// Expects exit code 2, nothing on standard output and one line on standard error that holds the words in `named`.
void refused(const Words& words, const Words& named);

}  // namespace prunex::tools
