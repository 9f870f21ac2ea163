// Words of strangers in our own lines.
#pragma once

#include <string>
#include <string_view>

namespace prunex::text {

/// As it is, but for control characters, which become \n or \xNN, and what is longer than some `most` bytes, which is
/// cut.
std::string one_line(std::string_view words, size_t most = 100);

/// Whether this is UTF-8, as JSON and TOML must be.
bool is_utf8(std::string_view words);

}  // namespace prunex::text
