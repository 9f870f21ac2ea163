// Numbers as a reader wants them, and strings of files that others wrote, before they are shown.
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

enum class Unit {
  kNumber,   ///< 1.5 k, 2 M
  kShare,    ///< 0.5 as 50 %
  kBytes,    ///< powers of 1000: 1.5 MB
  kSeconds,  ///< 20 ms, 90 s, 10 min, 2.5 h
  kMbit,     ///< 400 Mbit/s, 10 Gbit/s
};

/// At most `digits` significant digits, no trailing zeros: 1230 with two is "1.2 k", 0 is "0".
std::string format(double value, Unit unit, int digits = 3);
/// A plain number with at most `digits` significant digits, no exponent between 1e-4 and 1e15.
std::string plain(double value, int digits);
/// "91.2 ± 1.3" to as many digits as the half width, at least 0, of its interval leaves; without that if it is 0.
std::string with_interval(double value, double half_width);
/// "91.24 ± 0.31 %" of a share and its half width, likewise.
std::string percent(double share, double half_width = 0);

/// For text and attribute values of HTML and SVG, whatever the text holds.
std::string escape(std::string_view text);

}  // namespace prunex::report
