// Checks of the command line: each says in one line which option, what was got and what was wanted.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace prunex::tools {

/// For CLI::Option::check().
CLI::Validator above_zero();
CLI::Validator zero_or_more();
CLI::Validator between(double least, double most);
/// As of --threads.
inline constexpr double kMostThreads = 1024;
/// Seconds that milliseconds can count: from 0.001 to 1e6.
CLI::Validator seconds();
/// The same, or 0 for off.
CLI::Validator seconds_or_off();
/// A seed: a whole number from 0 on that 63 bits hold.
CLI::Validator seed_number();
/// One of the words, or, if `file` is an ending such as ".pt2", any name that ends so. Help shows them.
CLI::Validator one_of(const std::vector<std::string>& words, const std::string& file = "");
/// Not "", as of a shell's variable that is not set.
CLI::Validator not_empty();

/// Makes every option of a number or a flag, of this command and those below, take only what is one, written in full:
/// no nan, no inf, no hexadecimal or octal. A type such as "INT|auto" allows the word too. Called when all are there.
void check_numbers(CLI::App& app);

/// All of a text as a decimal number of 64 bits.
std::optional<int64_t> whole_number(const std::string& text);
std::chrono::milliseconds milliseconds_of(double seconds);

/// Throws std::invalid_argument if two options name one file, which the second would overwrite.
void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path);

/// --max-model-size, in MiB: for program::read_pt2().
CLI::Option* add_model_limit(CLI::App& app, int64_t& mebibytes);

}  // namespace prunex::tools
