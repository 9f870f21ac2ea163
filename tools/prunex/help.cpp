#include "tools/prunex/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace prunex::tools {
namespace {

constexpr size_t kDescriptions = 34;           // column
constexpr size_t kWidth = kTerminalWidth - 2;  // prunex --help-all indents commands
constexpr size_t kLongestType = 50;            // a list of more words goes behind the description

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::set<std::string> first = {}) : first_(std::move(first)) {}

  /// As CLI11 puts it together, with groups of our own.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    return make_description(app) + make_usage(app, name) + make_positionals(app) + groups_of(app, mode) +
           make_subcommands(app, mode) + '\n' + make_footer(app);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const OptionText text = text_of(*option);
    return entry(is_positional ? option->get_name(true) : text.heading, text.description);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }

 private:
  std::string groups_of(const CLI::App* app, CLI::AppFormatMode mode) const {
    const bool all = first_.empty() || mode != CLI::AppFormatMode::Normal;
    std::string text;
    size_t left_out = 0;
    for (const auto& group : app->get_groups()) {
      if (group.empty()) continue;
      auto options = app->get_options(
          [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
      const size_t in_group = options.size();
      if (!all) std::erase_if(options, [&](const CLI::Option* option) { return !first_.contains(option->get_name()); });
      left_out += in_group - options.size();
      if (!options.empty()) text += make_group(group, false, options);
    }
    if (left_out > 0) text += fmt::format("\n{} more: prunex {} --help-all\n", left_out, app->get_name());
    return text;
  }

  static std::string entry(const std::string& heading, const std::string& description) {
    std::string text = "  " + wrap(heading, 2, 6, kWidth);
    const size_t last_line = text.size() - (text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
    const bool fits = text.find('\n') == std::string::npos && last_line + 2 <= kDescriptions;
    text += fits ? std::string(kDescriptions - last_line, ' ') : '\n' + std::string(kDescriptions, ' ');
    return text + wrap(description, kDescriptions, kDescriptions, kWidth) + '\n';
  }

  std::set<std::string> first_;
};

/// "INT|auto", or the words of one_of() in braces.
std::string type_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon == 0) type.erase(0, 1);
  return type;
}

}  // namespace

std::string wrap(std::string_view text, size_t used, size_t indent, size_t width) {
  std::string lines;
  size_t column = used;
  bool first_in_line = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!first_in_line && column + 1 + word.size() > width) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first_in_line) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
    first_in_line = false;
  }
  return lines;
}

std::string shorten(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t front = (width - 1) / 2, back = width - 1 - front;
  return text.substr(0, front) + "…" + text.substr(text.size() - back);
}

void use_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "this text");
  app.set_help_all_flag("--help-all", "every option, by topic");
}

void show_first(CLI::App& command, const std::vector<std::string>& options) {
  std::set<std::string> first(options.begin(), options.end());
  first.insert({command.get_help_ptr()->get_name(), command.get_help_all_ptr()->get_name()});
  command.formatter(std::make_shared<HelpFormatter>(std::move(first)));
}

OptionText text_of(const CLI::Option& option) {
  OptionText text{option.get_name(false, true), option.get_description()};
  if (option.get_items_expected_max() == 0) return text;
  const auto words = words_of(option);
  std::string type = type_of(option);
  if (type.size() > kLongestType) {
    type = "WORD";
    text.description += fmt::format(": {}", fmt::join(words, ", "));
  }
  if (!type.empty()) text.heading += " " + type;
  if (!option.get_default_str().empty()) text.heading += "=" + option.get_default_str();
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) text.heading += " ...";
  if (option.get_required()) text.heading += " REQUIRED";
  return text;
}

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string type = type_of(option);
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

}  // namespace prunex::tools
