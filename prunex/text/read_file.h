// Files that are read whole.
#pragma once

#include <cstddef>
#include <string>

namespace prunex::text {

/// Bytes that a TOML file may have.
inline constexpr size_t kLargestToml = 1 << 20;

/// What a regular file holds, or what comes through a pipe that a shell opened, as /dev/stdin and /dev/fd/63 are.
/// Throws std::invalid_argument that says what is wrong, without the path: with a named pipe or a device one could wait
/// for ever.
std::string read_file(const std::string& path, size_t most_bytes);

/// Throws std::invalid_argument that names the option and where the path was looked for, if there is nothing.
void expect_there(const std::string& option, const std::string& path);

}  // namespace prunex::text
