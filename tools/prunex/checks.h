// Checks of the command line: each says in one line which option, what was got and what was wanted.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

namespace prunex::tools {

/// For CLI::Option::check().
CLI::Validator above_zero();
CLI::Validator zero_or_more();
/// Seconds that milliseconds can count: from 0.001 to 1e6.
CLI::Validator seconds();
/// The same, or 0 for off.
CLI::Validator seconds_or_off();
/// A seed: a whole number from 0 on that 63 bits hold.
CLI::Validator seed_number();
/// Not "", as of a shell's variable that is not set.
CLI::Validator not_empty();

std::chrono::milliseconds milliseconds_of(double seconds);

/// Throws std::invalid_argument if two options name one file, which the second would overwrite.
void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path);

/// What CLI11 says of a value that is no number, with what was wanted.
std::string explain(const CLI::ConversionError& error, const CLI::App& app);

}  // namespace prunex::tools
