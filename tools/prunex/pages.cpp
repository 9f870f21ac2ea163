// What the command says of itself: completion for a shell, the manual page, docs/options.md, types for Python.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/train/options.h"
#include "prunex/version.h"
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

/// Text as roff: hyphens that can be copied, no line that looks like a request.
std::string roff(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (text[i] == '.' || text[i] == '\'')) escaped += "\\&";
    if (text[i] == '-') {
      escaped += "\\-";
    } else if (text[i] == '\\') {
      escaped += "\\e";
    } else {
      escaped += text[i];
    }
  }
  return escaped;
}

std::string options_page(const CLI::App& app) {
  std::string page;
  for (const auto* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    page += fmt::format(".TP\n.I {}\n{}\n", roff(option->get_name(true)), roff(option->get_description()));
  }
  for (const auto& group : app.get_groups()) {
    const auto options = app.get_options(
        [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
    if (group.empty() || options.empty()) continue;
    if (group != "Options") page += fmt::format(".PP\n.I {}\n", roff(group));
    for (const auto* option : options) {
      page += fmt::format(".TP\n.B {}\n{}\n", roff(text_of(*option).heading), roff(text_of(*option).description));
    }
  }
  return page;
}

std::string command_page(const CLI::App& app, const std::string& name) {
  std::string page = fmt::format(".SH \"{}\"\n{}.\n", roff(name), roff(app.get_description()));
  page += options_page(app);
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) page += command_page(*command, name + " " + command->get_name());
  }
  if (!app.get_footer().empty()) page += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(app.get_footer()));
  return page;
}

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH PRUNEX 1 \"\" \"prunex {}\" \"User Commands\"\n", kVersion);
  page += ".SH NAME\nprunex \\- train image classifiers across machines and prune them meanwhile\n";
  page += ".SH SYNOPSIS\n.B prunex\n.I COMMAND\n.RI [ OPTION ...]\n";
  page += fmt::format(".SH DESCRIPTION\n{}\n", roff(app.get_description()));
  page += options_page(app);
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) page += command_page(*command, "prunex " + command->get_name());
  }
  return page +
         ".SH \"EXIT STATUS\"\n0 after success, 2 for a wrong command line or configuration, 1 for a failure while "
         "running; 128 and the signal's number after a signal.\n";
}

constexpr const char* kOptionsHead = R"(# Options of `prunex train`

Made by `prunex options` from their declarations; a test compares. Each may stand on the command line as `--name value`
or, but for those marked ¹, in a file for `--config` as `name = value`. An option is refused by name where its last
column says that it has no effect. Those marked ² may differ when a run goes on with `--resume`.
)";

/// For a cell of a table.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string value_of(const text::Option& option) {
  const auto& value = option.value;
  if (value.is_flag) return "off";
  std::string words = value.words.empty() ? value.type : fmt::format("{}", fmt::join(value.words, ", "));
  if (!option.usual.empty()) words += fmt::format("; {}", option.usual);
  return words;
}

std::string row_of(const text::Option& option) {
  std::vector<std::string> conditions;
  for (const auto& condition : option.conditions) {
    if (!condition.with.empty()) conditions.push_back(condition.with);
  }
  const std::string marks = std::string(option.in_files ? "" : "¹") + (option.in_files && option.may_differ ? "²" : "");
  return fmt::format("| `--{}`{} | {} | {} | {} |\n", option.name, marks, cell(value_of(option)),
                     cell(text::with_flags(option.help)), cell(fmt::format("{}", fmt::join(conditions, "; "))));
}

std::string options_page() {
  train::TrainOptions options;
  std::string page = kOptionsHead, topic;
  const text::OptionList list = train::describe(options);
  for (const auto& option : list.all()) {
    if (option.topic != topic) {
      topic = option.topic;
      page += fmt::format("\n## {}\n\n| option | values; default | meaning | has an effect with |\n|---|---|---|---|\n",
                          topic);
    }
    page += row_of(option);
  }
  return page;
}

constexpr const char* kPythonHead =
    R"("""Options as keywords, for type checkers and editors; made by `prunex options --python`."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypedDict

Words = str | int | float | PathLike[str] | Sequence[str | int | float]
"""What the command line would have there; a list stands for words with commas between them."""
)";

/// Of a value, as Python's type checkers read it.
std::string python_type(const text::OptionValue& value) {
  if (value.is_flag) return "bool";
  const auto is_open = [](const std::string& word) { return word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 0; };
  if (!value.words.empty() && std::none_of(value.words.begin(), value.words.end(), is_open)) {
    return fmt::format("Literal[\"{}\"]", fmt::join(value.words, "\", \""));
  }
  if (value.type == "INT" || value.type == "UINT") return "int";
  if (value.type == "FLOAT") return "float";
  if (value.type == "INT|auto") return "int | Literal[\"auto\"]";
  if (value.type == "FLOAT|auto") return "float | Literal[\"auto\"]";
  return "Words";
}

std::string python_class(const text::OptionList& list, const std::string& name, const std::string& about,
                         const std::function<bool(const std::string&)>& has) {
  std::string code = fmt::format("\n\nclass {}(TypedDict, total=False):\n    \"\"\"{}\"\"\"\n\n", name, about);
  for (const auto& option : list.all()) {
    if (!has(option.name)) continue;
    std::string keyword = option.name;
    std::replace(keyword.begin(), keyword.end(), '-', '_');
    const std::string usual = option.usual.empty() ? "" : fmt::format(" ({})", option.usual);
    code += fmt::format("    {}: {}\n    \"\"\"{}{}\"\"\"\n", keyword, python_type(option.value), option.help, usual);
  }
  return code;
}

std::string python_options() {
  train::TrainOptions options;
  const text::OptionList list = train::describe(options);
  const auto of_loops = train::loop_options();
  return kPythonHead +
         python_class(list, "TrainOptions", "Of prunex.train.",
                      [](const std::string& name) {
                        return name != "log" && name != "quiet";  // its own
                      }) +
         python_class(list, "StrategyOptions", "Of DiLoCo, HSADMM and LocalSGD.", [&](const std::string& name) {
           return std::find(of_loops.begin(), of_loops.end(), name) != of_loops.end();
         });
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

void add_man_page(CLI::App& app, int& status) {
  const auto run = [&app] { return fmt::print("{}", man_page(app)), 0; };
  add_command(app, {"man", "print the manual page", {}, run}, status).group("");
}

void add_options_page(CLI::App& app, int& status) {
  auto python = std::make_shared<bool>(false);
  text::OptionList list;
  list.add("python", text::flag(*python), "print them as types for Python");
  const auto run = [python] { return fmt::print("{}", *python ? python_options() : options_page()), 0; };
  add_command(app, {"options", "print docs/options.md", list, run}, status).group("");
}

}  // namespace prunex::tools
