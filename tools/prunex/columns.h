// Text that fits a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace prunex::tools {

inline constexpr size_t kTerminalWidth = 100;

/// Breaks between words so that lines fit; later lines begin with `indent` spaces, the first one has `used` columns
/// taken already. Without a newline at the end.
std::string wrap(std::string_view text, size_t used, size_t indent, size_t width = kTerminalWidth);

/// At most `width` characters, with "…" where the middle of a longer text was.
std::string shorten(const std::string& text, size_t width);

}  // namespace prunex::tools
