#include "report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/clean_text.h"

namespace prunex::report {
namespace {

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
