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

/// prunex with these words.
Result run(const std::vector<std::string>& words);

/// The application, for a look at its options.
std::unique_ptr<CLI::App> app();

}  // namespace prunex::tools
