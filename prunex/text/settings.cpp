#include "prunex/text/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "prunex/text/one_line.h"
#include "prunex/text/option.h"
#include "prunex/text/toml.h"

namespace prunex::text {
namespace {

/// Of a single value, as on a command line; nothing for dates, lists and tables.
std::optional<std::string> word_in(const toml::node& node) {
  if (const auto* word = node.as_string()) return word->get();
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* is_on = node.as_boolean()) return is_on->get() ? "true" : "false";
  return std::nullopt;
}

std::optional<std::string> list_in(const toml::node& node) {
  const auto* list = node.as_array();
  if (list == nullptr || list->empty()) return std::nullopt;
  std::string joined;
  for (const auto& item : *list) {
    const auto word = item.is_boolean() ? std::nullopt : word_in(item);
    if (!word) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *word;
  }
  return joined;
}

SettingKind kind_of(const toml::node& node) {
  if (node.is_array()) return SettingKind::kList;
  if (node.is_boolean()) return SettingKind::kSwitch;
  return node.is_number() ? SettingKind::kNumber : SettingKind::kWord;
}

Setting setting_of(const toml::key& key, const toml::node& node, const std::string& source) {
  const std::string name(key.str());
  const auto line = static_cast<int64_t>(key.source().begin.line);
  const auto refuse = [&](const char* what) {
    throw std::invalid_argument(fmt::format("{}:{}: '{}' {}", source, line, one_line(name), what));
  };
  if (node.is_table() || node.is_array_of_tables()) refuse("is a table, wanted name = value without any [section]");
  const auto value = node.is_array() ? list_in(node) : word_in(node);
  if (!value) refuse("has no value that fits: wanted a word, a number, true, false or a list of words and numbers");
  return {.name = name, .value = *value, .kind = kind_of(node), .line = line};
}

/// The number whose usual writing the word is.
template <class Number>
std::optional<Number> usual_number(const std::string& word) {
  Number number{};
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(static_cast<double>(number))) return std::nullopt;
  return fmt::format("{}", number) == word ? std::optional(number) : std::nullopt;
}

}  // namespace

std::vector<Setting> read_settings(std::string_view text, const std::string& source) {
  std::vector<Setting> settings;
  for (const auto& [key, node] : parse_toml(text, source)) settings.push_back(setting_of(key, node, source));
  std::stable_sort(settings.begin(), settings.end(), [](auto& a, auto& b) { return a.line < b.line; });
  return settings;
}

std::string setting_line(const std::string& name, const std::string& value) {
  if (!is_utf8(value)) {
    throw std::invalid_argument(fmt::format("{}: got '{}', which is not UTF-8: a configuration file cannot hold it",
                                            field_name(name), one_line(value)));
  }
  return fmt::format("{} = {}\n", name, toml_of(value));
}

std::string toml_of(const std::string& value) {
  if (value == "true" || value == "false") return value;
  if (const auto whole = usual_number<int64_t>(value)) return toml_text(toml::value<int64_t>(*whole));
  if (const auto number = usual_number<double>(value)) {
    const bool is_float = value.find_first_of(".e") != std::string::npos;
    return is_float ? value : toml_text(toml::value<double>(*number));
  }
  return toml_text(toml::value<std::string>(value));
}

std::string word_of(const std::string& toml) {
  try {
    const auto settings = read_settings("value = " + toml, "");
    return settings.size() == 1 ? settings[0].value : toml;
  } catch (const std::invalid_argument&) {
    return toml;
  }
}

}  // namespace prunex::text
