// prunex completion
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

constexpr const char* kHead = R"(# bash completion for prunex, made by: prunex completion bash
_prunex() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} at=prunex words= files= i
  if [[ $current == = ]]; then current=; elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$at ${COMP_WORDS[i]}" in
)";

constexpr const char* kTail = R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; [[ $files ]] && compgen -f -- "$current")
  [[ $files ]] && compopt -o filenames 2>/dev/null
  return 0
}
complete -F _prunex prunex
)";

/// Every command that help shows, with its words from "prunex" on.
using Commands = std::vector<std::pair<std::string, const CLI::App*>>;

void collect(const CLI::App& app, const std::string& path, Commands& commands) {
  commands.emplace_back(path, &app);
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) collect(*command, path + " " + command->get_name(), commands);
  }
}

/// What may follow an option that takes a value.
std::string values_case(const std::string& path, const CLI::Option& option) {
  auto words = words_of(option);
  const std::string type = option.get_type_name();
  const bool is_number = type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
  bool files = words.empty() && !is_number;
  std::erase_if(words, [&](const std::string& word) { return word.starts_with("FILE") && (files = true); });
  std::vector<std::string> patterns;
  for (const auto& name : option.get_lnames()) patterns.push_back(fmt::format("\"{} --{}\"", path, name));
  for (const auto& name : option.get_snames()) patterns.push_back(fmt::format("\"{} -{}\"", path, name));
  return fmt::format("    {}) words=\"{}\"{} ;;\n", fmt::join(patterns, " | "), fmt::join(words, " "),
                     files ? " files=1" : "");
}

/// What may stand where no option waits for its value.
std::string words_case(const std::string& path, const CLI::App& app) {
  std::vector<std::string> words;
  bool files = false;
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) words.push_back(command->get_name());
  }
  for (const auto* option : app.get_options(nullptr)) {
    files = files || option->get_positional();
    for (const auto& name : option->get_lnames()) words.push_back("--" + name);
  }
  return fmt::format("      \"{}\") words=\"{}\"{} ;;\n", path, fmt::join(words, " "), files ? " files=1" : "");
}

std::string bash_completion(const CLI::App& app) {
  Commands commands;
  collect(app, "prunex", commands);
  std::vector<std::string> below;
  for (const auto& [path, command] : commands) {
    if (command != &app) below.push_back('"' + path + '"');
  }
  std::string script = kHead;
  script += fmt::format("      {}) at=\"$at ${{COMP_WORDS[i]}}\" ;;\n    esac\n  done\n", fmt::join(below, " | "));
  script += "  case \"$at $previous\" in\n";
  for (const auto& [path, command] : commands) {
    for (const auto* option : command->get_options(nullptr)) {
      const bool takes_value = option->nonpositional() && option->get_items_expected_max() > 0;
      if (takes_value) script += values_case(path, *option);
    }
  }
  script += "    *) case \"$at\" in\n";
  for (const auto& [path, command] : commands) script += words_case(path, *command);
  return script + "    esac ;;\n" + kTail;
}

}  // namespace

void add_completion(CLI::App& app, int& status) {
  auto shell = std::make_shared<std::string>();
  text::OptionList list;
  list.add("SHELL", text::one_of(*shell, {"bash"}), "the shell").must().positional();
  const auto run = [&app, shell] { return fmt::print("{}", bash_completion(app)), 0; };
  add_command(app, {"completion", "print what a shell completes prunex's command lines with", list, run}, status)
      .group("");
}

}  // namespace prunex::tools
