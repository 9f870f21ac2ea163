#include "report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
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

struct Step {
  double size;
  const char* name;
};

/// The largest step that does not exceed the value, with the value in it.
template <size_t kCount>
std::string scaled(double value, int digits, const std::array<Step, kCount>& steps) {
  const Step* chosen = &steps.front();
  for (const auto& step : steps) {
    if (std::abs(value) * (1 + 1e-9) >= step.size) chosen = &step;
  }
  return plain(value / chosen->size, digits) + chosen->name;
}

constexpr std::array<Step, 5> kCounts{{{1, ""}, {1e3, " k"}, {1e6, " M"}, {1e9, " G"}, {1e12, " T"}}};
constexpr std::array<Step, 5> kBytes{{{1, " B"}, {1e3, " kB"}, {1e6, " MB"}, {1e9, " GB"}, {1e12, " TB"}}};
constexpr std::array<Step, 3> kTimes{{{1e-6, " µs"}, {1e-3, " ms"}, {1, " s"}}};
constexpr std::array<Step, 3> kRates{{{1e-3, " kbit/s"}, {1, " Mbit/s"}, {1e3, " Gbit/s"}}};

std::string seconds(double value, int digits) {
  const double size = std::abs(value);
  if (size >= 259200) return plain(value / 86400, digits) + " d";
  if (size >= 7200) return plain(value / 3600, digits) + " h";
  if (size >= 300) return plain(value / 60, digits) + " min";
  return scaled(value, digits, kTimes);
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

std::string plain(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value == 0 ? "0" : "–";
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  if (before < -3 || before > 15) return fmt::format("{:.{}g}", value, digits);
  std::string text = fmt::format("{:.{}f}", value, std::max(0, digits - before));
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string format(double value, Unit unit, int digits) {
  if (value == 0 && unit != Unit::kShare) return "0";
  switch (unit) {
    case Unit::kShare:
      return plain(100 * value, digits) + " %";
    case Unit::kBytes:
      return scaled(value, digits, kBytes);
    case Unit::kSeconds:
      return seconds(value, digits);
    case Unit::kMbit:
      return scaled(value, digits, kRates);
    case Unit::kNumber:
      break;
  }
  return std::abs(value) < 1e4 ? plain(value, digits) : scaled(value, digits, kCounts);
}

std::string with_interval(double value, double half_width) {
  const int decimals = half_width >= 10 ? 0 : half_width >= 1 ? 1 : 2;
  const std::string mean = fmt::format("{:.{}f}", value, decimals);
  return half_width == 0 ? mean : fmt::format("{} ± {:.{}f}", mean, half_width, decimals);
}

std::string percent(double share, double half_width) {
  return with_interval(100 * share, 100 * half_width) + " %";
}

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : cleaned(text)) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace prunex::report
