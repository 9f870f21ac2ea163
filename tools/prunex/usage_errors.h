// What is wrong with a command line, in one line that names the option, what was got and what was wanted.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace prunex::tools {

/// What CLI11 refuses, with what may have been meant.
std::string explain(const CLI::ParseError& error, const CLI::App& app);

/// What LibTorch says: its first line, or, of memory that there is not, how much was asked for.
std::string explain_torch(const std::string& message);
std::string out_of_memory();
std::string no_more_threads();
/// An error of a node of the network: with the file of --model before it, if it is one.
std::string name_network(const std::string& message, const CLI::App& app);

/// Throws std::invalid_argument for an option with nothing for its value, as of a shell's variable that is not set:
/// what is to be left alone is not named. Of "--name=" CLI11 would take the next word.
void refuse_empty_values(const std::vector<std::string>& words, const CLI::App& app);

}  // namespace prunex::tools
