#include "report/clean_text.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

namespace prunex::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// Bytes of the character that begins here; 0 if none does.
size_t length_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<int64_t>(length), continues)) return 0;
  const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

/// U+0000 to U+001F, U+007F to U+009F, and U+FFFE and U+FFFF, which XML does not have.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (character.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;
  return character.size() == 3 && byte(0) == 0xef && byte(1) == 0xbf && byte(2) >= 0xbe;
}

}  // namespace

std::string cleaned(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = length_at(text);
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0) {
      clean += kReplacement;
    } else if (character == "\t" || character == "\n" || character == "\r") {
      clean += ' ';
    } else if (!is_control(character)) {
      clean += character;
    }
    text.remove_prefix(character.size());
  }
  return clean;
}

size_t width_of(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), continues));
}

std::string shortened(const std::string& text, size_t most) {
  std::string clean = cleaned(text);
  if (width_of(clean) <= most) return clean;
  size_t bytes = 0;
  for (size_t i = 1; i < most; ++i) bytes += length_at(std::string_view(clean).substr(bytes));
  return clean.substr(0, bytes) + "…";
}

std::string wrapped(const std::string& text, size_t width) {
  std::string lines;
  size_t used = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; used += width_of(word)) {
    const bool fits = used + 1 + width_of(word) <= width;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = used > 0 && fits ? used + 1 : 0;
    lines += word;
  }
  return lines;
}

}  // namespace prunex::report
