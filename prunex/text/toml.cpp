#include "prunex/text/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "prunex/text/one_line.h"
#include "prunex/text/read_file.h"

namespace prunex::text {
namespace {

// Every dot may begin a table in a table, which toml++ leaves by recursion; brackets it bounds itself.
constexpr std::ptrdiff_t kMostDots = 2000;

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& source) {
  if (text.size() > kLargestToml) {
    throw std::invalid_argument(fmt::format("{}: got more than {} bytes, wanted a TOML file", source, kLargestToml));
  }
  if (std::count(text.begin(), text.end(), '.') > kMostDots) {
    throw std::invalid_argument(fmt::format("{}: got more than {} dots, wanted fewer", source, kMostDots));
  }
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw std::invalid_argument(
        fmt::format("{}:{}: {}", source, error.source().begin.line, one_line(error.description())));
  }
}

std::string toml_text(const toml::node& value) {
  constexpr auto kStrings = toml::format_flags::allow_multi_line_strings | toml::format_flags::allow_literal_strings;
  constexpr auto kForm = toml::toml_formatter::default_flags & ~kStrings;  // one line, with escapes
  std::ostringstream text;
  text << toml::toml_formatter(value, kForm);
  return text.str();
}

}  // namespace prunex::text
