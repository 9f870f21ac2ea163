// Strings of files that others wrote, before they are shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace prunex::report {

/// One line of valid UTF-8: what is not valid becomes U+FFFD, tabs and ends of lines become spaces, other control
/// characters are left out.
std::string cleaned(std::string_view text);

/// Characters of valid UTF-8, not bytes.
size_t width_of(std::string_view text);

/// Valid UTF-8 of at most `most` >= 1 characters, the last of them "…" if some were left out.
std::string shortened(const std::string& text, size_t most);

/// Broken at spaces into lines of at most `width` characters; a longer word has a line of its own.
std::string wrapped(const std::string& text, size_t width);

}  // namespace prunex::report
