// What every fuzzer shares: files for its input, what a reader may throw, how much memory it may take.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace prunex::fuzz {

/// This process's own, removed at its end: below the folder for temporary files, which is best one in memory.
const std::string& folder();

/// Writes the bytes into folder() and returns the path.
std::string file_of(std::string_view bytes);

/// Ends the process, a finding, if the call throws anything but std::invalid_argument or std::runtime_error with one
/// line of text, or if at any time it holds more memory than 64 times the input and 32 MiB.
void expect_clear(size_t input_bytes, const std::function<void()>& call);

/// Ends the process, a finding, with this line.
[[noreturn]] void fail(const std::string& what);

/// Leaves a seed as a file of the corpus.
void write_seed(const std::string& directory, const std::string& name, std::string_view bytes);

/// Of each fuzzer: files to start from.
void write_seeds(const std::string& directory);

}  // namespace prunex::fuzz
