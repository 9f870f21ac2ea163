// Options in TOML files: lines of `name = value`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prunex::text {

enum class SettingKind { kWord, kNumber, kSwitch, kList };

struct Setting {
  std::string name;
  std::string value;  ///< as on a command line: a word without quotes, a list joined by commas
  SettingKind kind = SettingKind::kWord;
  int64_t line = 0;
};

/// The settings of a text in its order. Throws std::invalid_argument, "SOURCE:LINE: what is wrong": no TOML, a name
/// that is there twice, a table, a value that is no word, number, true or false, nor a list of words and numbers.
std::vector<Setting> read_settings(std::string_view text, const std::string& source);

/// `name = value` and a line break; the value is written as a number, or as true or false, if that reads back as the
/// same word. Throws std::invalid_argument that names the option if the value is not UTF-8.
std::string setting_line(const std::string& name, const std::string& value);

/// The value as TOML has it: what setting_line writes behind the name.
std::string toml_of(const std::string& value);
/// And back. What is no value of TOML stays as it is.
std::string word_of(const std::string& toml);

}  // namespace prunex::text
