#include "tools/prunex/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <type_traits>

#include "tools/prunex/did_you_mean.h"

namespace prunex::tools {
namespace {

/// Decimal, all of the text, finite; a leading + is fine.
template <class Number>
std::optional<Number> number_in(const std::string& text) {
  const char* end = text.data() + text.size();
  const char* begin = text.data() + (text.starts_with('+') && !text.starts_with("+-") ? 1 : 0);
  Number value{};
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || rest != end || !std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}

bool is_any_of(const std::string& text, const std::vector<std::string>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

CLI::Validator number(const std::string& wanted, const std::function<bool(double)>& fits) {
  return {[wanted, fits](const std::string& text) {
            const auto value = number_in<double>(text);
            return value && fits(*value) ? "" : fmt::format("got '{}', wanted {}", text, wanted);
          },
          ""};
}

/// "INT", or "auto" and "never" of "INT|auto|never".
std::vector<std::string> parts_of(const std::string& type) {
  return CLI::detail::split(type.substr(0, type.find(':')), '|');
}

/// Numbers as they are written in one way: CLI11 would take 010 for 8 and 9e99 for the largest number there is.
template <class Number>
CLI::Validator written_number(const std::string& wanted, const std::vector<std::string>& words, Number least) {
  return {[wanted, words, least](std::string& text) -> std::string {
            if (is_any_of(text, words)) return "";
            const auto value = number_in<Number>(text);
            const bool fits = value && *value >= least;
            if (fits && std::is_integral_v<Number>) text = fmt::format("{}", *value);
            return fits ? "" : fmt::format("got '{}', wanted {}", text, wanted);
          },
          "", "number"};
}

CLI::Validator flag_value() {
  return {[](std::string& text) {
            const bool fits = is_any_of(text, {"true", "false", "1", "0"});
            return fits ? std::string() : fmt::format("got '{}', wanted true or false", text);
          },
          "", "flag"};
}

void check_numbers(CLI::Option& option) {
  const auto parts = parts_of(option.get_type_name());
  const std::string type = parts.empty() ? "" : parts.front();
  const std::vector<std::string> words(parts.begin() + (parts.empty() ? 0 : 1), parts.end());
  const bool has_other_forms =
      std::any_of(words.begin(), words.end(), [](const auto& word) { return std::isupper(word[0]); });
  if (has_other_forms) return;  // such as "INT|TIME": its command reads it
  const auto wanted = [&words](const std::string& number) {
    return words.empty() ? number : fmt::format("{} or {}", number, fmt::join(words, " or "));
  };
  constexpr auto kAny = std::numeric_limits<int64_t>::lowest();
  if (type == "INT") option.transform(written_number<int64_t>(wanted("a whole number"), words, kAny));
  if (type == "UINT") option.transform(written_number<int64_t>(wanted("a whole number from 0 on"), words, 0));
  if (type == "FLOAT") {
    option.transform(written_number<double>(wanted("a number"), words, std::numeric_limits<double>::lowest()));
  }
  const bool is_flag = option.get_items_expected_max() == 0 && option.get_configurable();
  if (is_flag || type == "BOOLEAN") option.transform(flag_value());
}

}  // namespace

void check_numbers(CLI::App& app) {
  for (auto* option : app.get_options(nullptr)) check_numbers(*option);
  for (auto* command : app.get_subcommands(nullptr)) check_numbers(*command);
}

CLI::Validator one_of(const std::vector<std::string>& words, const std::string& file) {
  std::vector<std::string> shown = words;
  std::erase(shown, "");
  if (!file.empty()) shown.push_back("FILE" + file);
  const auto check = [words, shown, file](const std::string& text) {
    const bool fits = is_any_of(text, words) || (!file.empty() && text.ends_with(file));
    return fits ? ""
                : fmt::format("got '{}', wanted one of {}{}", text, fmt::join(shown, ", "), did_you_mean(text, words));
  };
  return {check, fmt::format("{{{}}}", fmt::join(shown, ","))};
}

CLI::Validator above_zero() {
  return number("a number above 0", [](double value) { return value > 0; });
}

CLI::Validator between(double least, double most) {
  return number(fmt::format("a number from {:.15g} to {:.15g}", least, most),
                [least, most](double value) { return value >= least && value <= most; });
}

CLI::Validator zero_or_more() {
  return number("a number from 0 on", [](double value) { return value >= 0; });
}

CLI::Validator seconds() {
  return number("seconds from 0.001 to 1e6", [](double value) { return value >= 0.001 && value <= 1e6; });
}

CLI::Validator seconds_or_off() {
  return number("seconds from 0.001 to 1e6, or 0 for off",
                [](double value) { return value == 0 || (value >= 0.001 && value <= 1e6); });
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

CLI::Validator seed_number() {
  return {[](const std::string& text) {
            int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            const bool fits = error == std::errc() && rest == end && value >= 0;
            return fits ? ""
                        : fmt::format("got '{}', wanted a whole number from 0 to {}", text,
                                      std::numeric_limits<int64_t>::max());
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](const std::string& text) { return std::string(text.empty() ? "got '', wanted a name" : ""); }, ""};
}

std::optional<int64_t> whole_number(const std::string& text) {
  return number_in<int64_t>(text);
}

void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::weakly_canonical(path, ignored) != fs::weakly_canonical(other_path, ignored)) return;
  throw std::invalid_argument(fmt::format("{}: got {}, which is {}: wanted another file", option, path, other));
}

CLI::Option* add_model_limit(CLI::App& app, int64_t& mebibytes) {
  constexpr int64_t kMost = int64_t{1} << 40;
  return app
      .add_option("--max-model-size", mebibytes,
                  "MiB that the records of a FILE.pt2 may have together; 0: eight times the file")
      ->check(between(0, static_cast<double>(kMost)));
}

}  // namespace prunex::tools
