#include "tools/prunex/checkpoint_option.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace prunex::tools {
namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> seconds_in(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"min", 60}, {"s", 1}, {"h", 3600}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = number_in<double>(text.substr(0, text.size() - unit.size()));
    if (number) return *number * seconds;
  }
  return std::nullopt;
}

}  // namespace

void set_checkpoints(train::TrainOptions& options, const std::string& word) {
  if (word == "auto") return;
  if (const auto exchanges = number_in<int64_t>(word); exchanges && *exchanges >= 0) {
    options.checkpoint_every = *exchanges;
  } else if (const auto seconds = seconds_in(word); seconds && *seconds > 0) {
    options.checkpoint_seconds = *seconds;
  } else {
    throw std::invalid_argument(fmt::format(
        "--checkpoint-every: got '{}', wanted a number of exchanges, a time such as 90s, 10min or 1h, or auto", word));
  }
}

}  // namespace prunex::tools
