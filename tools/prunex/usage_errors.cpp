#include "tools/prunex/usage_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "prunex/text/option.h"

namespace prunex::tools {
namespace {

/// The command that was given, down to the last word of it.
const CLI::App& command_of(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : command_of(*given.front());
}

/// "train", "bench all_reduce"; "" of prunex itself.
std::string name_of(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "";
  const std::string parent = name_of(*app.get_parent());
  return parent.empty() ? app.get_name() : parent + " " + app.get_name();
}

std::string prefix_of(const CLI::App& app) {
  const std::string name = name_of(app);
  return name.empty() ? "" : name + ": ";
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::string or_else(const std::string& guess, const std::string& otherwise) {
  return guess.empty() ? otherwise : guess;
}

std::string unknown_word(const std::string& word, const CLI::App& app) {
  const std::string help = (name_of(app).empty() ? "" : name_of(app) + " ");
  if (word.starts_with('-') && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    return fmt::format(
        "{}there is no option '{}'{}", prefix_of(app), name,
        or_else(text::did_you_mean(name, options_of(app)), fmt::format("; prunex {}--help-all lists them", help)));
  }
  const auto commands = commands_of(app);
  if (commands.empty() || !app.get_subcommands().empty()) {
    return fmt::format("{}got '{}', wanted no further word", prefix_of(app), word);
  }
  return fmt::format("{}there is no command '{}'{}", prefix_of(app), word,
                     or_else(text::did_you_mean(word, commands), fmt::format("; prunex {}--help lists them", help)));
}

/// The first word that no option or command took; "" if all were.
std::string explain_extra(const CLI::App& app) {
  for (const CLI::App* command = &command_of(app); command != nullptr; command = command->get_parent()) {
    const auto words = command->remaining();
    if (!words.empty()) return unknown_word(words.front(), *command);
  }
  return "";
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command = &command_of(app); command != nullptr; command = command->get_parent()) {
    if (const auto* option = command->get_option_no_throw(name)) return option;
  }
  return nullptr;
}

/// The option that CLI11's message begins with, or that it names after `before`.
const CLI::Option* option_in(const std::string& message, std::string_view before, const CLI::App& app) {
  if (!message.starts_with(before)) return nullptr;
  const size_t end = message.find_first_of(": ", before.size());
  return find_option(app, message.substr(before.size(), end - before.size()));
}

bool is_whole_number(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

std::string wanted_by(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return "no value, true or false";
  if (type.starts_with("UINT")) return "a whole number from 0 on";
  if (type.starts_with("INT")) return "a whole number";
  if (type.starts_with("FLOAT")) return "a number";
  if (type.starts_with("{")) return "one of " + type.substr(1, type.find('}') - 1);
  return option.get_description();
}

/// A value that does not fit its type: numbers of fewer bits than the value has.
std::string explain_value(const CLI::Option& option) {
  const auto& values = option.results();
  const std::string got = values.empty() ? "" : values.back();
  const bool too_large = is_whole_number(got) && option.get_type_name().starts_with("INT");
  const std::string wanted =
      too_large ? fmt::format("a whole number of at most {}", std::numeric_limits<int>::max()) : wanted_by(option);
  return fmt::format("{}: got '{}', wanted {}", option.get_name(), got, wanted);
}

std::string explain_missing(const CLI::Option& option, const CLI::App& app) {
  return fmt::format("{}{}: got nothing, wanted {}", prefix_of(command_of(app)), option.get_name(),
                     option.get_description());
}

/// "3072.0 GB", "64.0 kB".
std::string size_of(double bytes) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(units); bytes /= 1000) ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

/// What there is in all, and who says so.
std::string memory_here() {
  rlimit limit{};
  const double here = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && static_cast<double>(limit.rlim_cur) < here;
  return limited ? "ulimit -v permits " + size_of(static_cast<double>(limit.rlim_cur))
                 : "this machine has " + size_of(here);
}

}  // namespace

std::string explain(const CLI::ParseError& error, const CLI::App& app) {
  const std::string text = error.what();
  const std::string extra = explain_extra(app);
  if (!extra.empty() && error.get_name() != "ValidationError") return extra;
  if (error.get_name() == "ConversionError") {
    for (const std::string_view before : {"Could not convert: ", ""}) {
      if (const auto* option = option_in(text, before, app)) return explain_value(*option);
    }
  }
  if (error.get_name() == "ArgumentMismatch") {
    const auto* option = option_in(text, "", app);
    const size_t times = option == nullptr ? 0 : option->results().size();
    if (times > 1) return fmt::format("{}: got it {} times, wanted it once", option->get_name(), times);
    if (option != nullptr) return fmt::format("{}: got nothing, wanted {}", option->get_name(), wanted_by(*option));
  }
  if (error.get_name() == "RequiredError") {
    if (const auto* option = option_in(text, "", app)) return explain_missing(*option, app);
    const CLI::App& command = command_of(app);
    return fmt::format("{}no command given, wanted {}", prefix_of(command), fmt::join(commands_of(command), ", "));
  }
  return text;
}

std::string explain_torch(const std::string& message) {
  constexpr std::string_view kAsked = "you tried to allocate ";
  const size_t asked = message.find(kAsked);
  if (asked != std::string::npos) {
    const double bytes = std::strtod(message.c_str() + asked + kAsked.size(), nullptr);
    return fmt::format("out of memory: {} were wanted for one tensor, {} in all", size_of(bytes), memory_here());
  }
  return message.substr(0, message.find('\n'));
}

std::string out_of_memory() {
  return fmt::format("out of memory: {}; smaller numbers of images, ranks or threads need less", memory_here());
}

std::string no_more_threads() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format("cannot start a thread: {}", known ? fmt::format("ulimit -u permits {}", limit.rlim_cur)
                                                        : std::string("the system permits no more"));
}

std::string name_network(const std::string& message, const CLI::App& app) {
  constexpr std::string_view kMark = "[prune] ";
  const bool marked = message.starts_with(kMark);
  const auto* model = find_option(app, "--model");
  if (model == nullptr || model->results().empty() || (!marked && message.find("(in node ") == std::string::npos)) {
    return message;
  }
  const std::string& file = model->results().back();
  if (!file.ends_with(".pt2") || message.find(file) != std::string::npos) return message;
  return fmt::format("{}: {}", file, marked ? message.substr(kMark.size()) : message);
}

void refuse_empty_values(const std::vector<std::string>& words, const CLI::App& app) {
  const CLI::App* command = &app;
  for (size_t i = 0; i < words.size(); ++i) {
    for (const auto* below : command->get_subcommands(nullptr)) {
      if (below->get_name() != words[i]) continue;
      command = below;
      break;
    }
    const std::string name = words[i].substr(0, words[i].find('='));
    const bool is_empty = words[i] == name + "=" || (i + 1 < words.size() && words[i] == name && words[i + 1].empty());
    const auto* option = is_empty && name.starts_with('-') ? command->get_option_no_throw(name) : nullptr;
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    throw std::invalid_argument(fmt::format("{}: got '', wanted {}", option->get_name(), wanted_by(*option)));
  }
}

}  // namespace prunex::tools
