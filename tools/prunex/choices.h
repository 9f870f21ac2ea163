// Options that take one of several words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace prunex::tools {

/// The words of an option and what they mean.
template <class T>
using Words = std::vector<std::pair<std::string, T>>;

/// Adds an option that sets `value` by word; its present value is the default. Help and configuration files show words.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& value, const Words<T>& words,
                        const std::string& description) {
  std::vector<std::string> names;
  std::string present;
  for (const auto& [word, meaning] : words) {
    names.push_back(word);
    if (meaning == value) present = word;
  }
  auto* option = app.add_option_function<std::string>(
      name,
      [&value, words](const std::string& word) {
        for (const auto& [candidate, meaning] : words) {
          if (candidate == word) value = meaning;
        }
      },
      description);
  return option->check(CLI::IsMember(names))->default_str(present)->type_name("");
}

}  // namespace prunex::tools
