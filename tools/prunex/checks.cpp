#include "tools/prunex/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace prunex::tools {
namespace {

CLI::Validator number(const char* wanted, const std::function<bool(double)>& fits) {
  return {[wanted, fits](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            return is_number && fits(value) ? "" : fmt::format("got '{}', wanted {}", text, wanted);
          },
          ""};
}

/// The option of the command that was given, or of the command below it.
const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (const auto* option = find_option(*command, name)) return option;
  }
  return app.get_option_no_throw(name);
}

const char* wanted_by(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("UINT")) return "a whole number from 0 on";
  if (type.starts_with("INT")) return "a whole number";
  return type.starts_with("FLOAT") ? "a number" : "true or false";
}

}  // namespace

CLI::Validator above_zero() {
  return number("a number above 0", [](double value) { return value > 0; });
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

void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::weakly_canonical(path, ignored) != fs::weakly_canonical(other_path, ignored)) return;
  throw std::invalid_argument(fmt::format("{}: got {}, which is {}: wanted another file", option, path, other));
}

std::string explain(const CLI::ConversionError& error, const CLI::App& app) {
  // "Could not convert: --lr = fast"
  const std::string text = error.what();
  constexpr std::string_view kStart = "Could not convert: ", kIs = " = ";
  const auto is = text.find(kIs);
  if (!text.starts_with(kStart) || is == std::string::npos) return text;
  const std::string name = text.substr(kStart.size(), is - kStart.size());
  const CLI::Option* option = find_option(app, name);
  if (option == nullptr) return text;
  const std::string all = text.substr(is + kIs.size());
  const std::string last = all.substr(all.rfind(',') + 1);  // an option that is there twice has its last value
  return fmt::format("{}: got '{}', wanted {}", name, last, wanted_by(*option));
}

}  // namespace prunex::tools
