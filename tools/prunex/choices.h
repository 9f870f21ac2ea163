// Options that take one of several words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "prunex/prune/words.h"
#include "tools/prunex/checks.h"

namespace prunex::tools {

using prune::Words;

/// Adds an option that sets `value` by word; its present value is the default. Help and configuration files show words.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& value, const Words<T>& words,
                        const std::string& description) {
  std::string present;
  for (const auto& [word, meaning] : words) {
    if (meaning == value) present = word;
  }
  auto* option = app.add_option_function<std::string>(
      name, [&value, words, name](const std::string& word) { value = prune::meaning_of(word, words, name.c_str()); },
      description);
  return option->check(one_of(prune::names_of(words)))->default_str(present)->type_name("");
}

}  // namespace prunex::tools
