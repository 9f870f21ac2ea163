// prunex options: docs/options.md
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "prunex/train/options.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

constexpr const char* kHead = R"(# Options of `prunex train`

Made by `prunex options` from their declarations; a test compares. Each may stand on the command line as `--name value`
or, but for those marked ¹, in a file for `--config` as `name = value`. Given where it has no effect, an option is refused by
name. Those marked ² may differ when a run goes on with `--resume`.
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
  std::string page = kHead, topic;
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

}  // namespace

void add_options_page(CLI::App& app, int& status) {
  const auto run = [] { return fmt::print("{}", options_page()), 0; };
  add_command(app, {"options", "print docs/options.md", {}, run}, status).group("");
}

}  // namespace prunex::tools
