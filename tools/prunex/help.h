// --help: what people use, and examples; --help-all: every option, by topic.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace prunex::tools {

/// Gives the application, and the commands that are added later, both flags and lines that fit a terminal.
void use_help(CLI::App& app);

/// Lets --help of the command show these options only, which --help-all shows with the others.
void show_first(CLI::App& command, const std::vector<std::string>& options);

/// An option as help and the manual page write it.
struct OptionText {
  std::string heading;  ///< "--lr FLOAT=0.1", "-n,--iterations INT=10"
  std::string description;
};
OptionText text_of(const CLI::Option& option);

/// Words that the option may be, as one_of() was told; "FILE…" stands for a file.
std::vector<std::string> words_of(const CLI::Option& option);

}  // namespace prunex::tools
