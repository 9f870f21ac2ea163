#include "tools/prunex/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "prunex/say.h"
#include "prunex/text/one_line.h"
#include "prunex/text/option.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"
#include "tools/prunex/standard_streams.h"
#include "tools/prunex/version.h"

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
  if (word == "help") return fmt::format("{}there is no command 'help'; did you mean '--help'?", prefix_of(app));
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

/// The option that CLI11's message begins with.
const CLI::Option* option_in(const std::string& message, const CLI::App& app) {
  return find_option(app, message.substr(0, message.find_first_of(": ")));
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

/// What CLI11 refuses, with what may have been meant.
std::string explain(const CLI::ParseError& error, const CLI::App& app) {
  const std::string text = error.what();
  const std::string extra = explain_extra(app);
  if (!extra.empty()) return extra;
  if (error.get_name() == "ArgumentMismatch") {
    const auto* option = option_in(text, app);
    const size_t times = option == nullptr ? 0 : option->results().size();
    if (times > 1) return fmt::format("{}: got it {} times, wanted it once", option->get_name(), times);
    if (option != nullptr) return fmt::format("{}: got nothing, wanted {}", option->get_name(), wanted_by(*option));
  }
  if (error.get_name() == "RequiredError") {
    if (const auto* option = option_in(text, app)) return explain_missing(*option, app);
    const CLI::App& command = command_of(app);
    return fmt::format("{}no command given, wanted {}", prefix_of(command), fmt::join(commands_of(command), ", "));
  }
  return text;
}

/// What LibTorch says: its first line, or, of memory that there is not, how much was asked for.
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

}  // namespace

std::string no_more_threads() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format("cannot start a thread: {}", known ? fmt::format("ulimit -u permits {}", limit.rlim_cur)
                                                        : std::string("the system permits no more"));
}

std::string name_network(const std::string& message, const CLI::App& app) {
  constexpr std::string_view kMark = "[channels] ";
  const bool marked = message.starts_with(kMark);
  const bool begins_with_node = message.starts_with("node ") && message.find("::") != std::string::npos;
  const bool of_a_node = marked || begins_with_node || message.find("(in node ") != std::string::npos;
  const auto* model = find_option(app, "--model");
  if (model == nullptr || model->results().empty() || !of_a_node) return message;
  const std::string& file = model->results().back();
  if (!file.ends_with(".pt2") || message.find(file) != std::string::npos) return message;
  return fmt::format("{}: {}", file, marked ? message.substr(kMark.size()) : message);
}

namespace {

/// Throws std::invalid_argument for an option with nothing for its value, as of a shell's variable that is not set:
/// what is to be left alone is not named. Of "--name=" CLI11 would take the next word.
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
    if (option == nullptr || (option->get_items_expected_max() == 0 && words[i] == name)) continue;
    throw std::invalid_argument(fmt::format("{}: got '', wanted {}", option->get_name(), wanted_by(*option)));
  }
}

constexpr int kFailure = 1, kUsage = 2;
constexpr size_t kLongestMessage = 4000;  // paths included

int fail(int status, const std::string& message) {
  say(fmt::format("prunex: {}\n", text::one_line(text::with_flags(message), kLongestMessage)));
  return status;
}

/// What an exception that is being handled says, and its exit code.
int explain_failure(const CLI::App& app) {
  try {
    throw;
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    return fail(kUsage, explain(error, app));
  } catch (const std::invalid_argument& error) {
    return fail(kUsage, name_network(error.what(), app));
  } catch (const c10::Error& error) {
    return fail(kFailure, name_network(explain_torch(error.what_without_backtrace()), app));
  } catch (const std::bad_alloc&) {
    return fail(kFailure, out_of_memory());
  } catch (const std::logic_error& error) {  // of the standard library: an index out of range, a vector too long
    return fail(kFailure, fmt::format("internal error ({}): please report it with the command line", error.what()));
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) return fail(kFailure, no_more_threads());
    const std::string output = output_problem();  // printing throws, and does not say where to
    forget_output();
    return fail(kFailure, output.empty() ? error.what() : output);
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
}

int parse_and_run(int argc, char** argv) {
  int status = 0;
  const auto app = make_app(argv, status);
  try {
    refuse_empty_values({argv + 1, argv + argc}, *app);
    app->parse(argc, argv);
    if (app->get_subcommands().empty()) return fail(kUsage, "no command given; prunex --help lists them");
    return status;
  } catch (...) {
    return explain_failure(*app);
  }
}

}  // namespace

std::unique_ptr<CLI::App> make_app(char** argv, int& status) {
  auto app = std::make_unique<CLI::App>(
      "Trains image classifiers across slow links and prunes them structurally while they train.", "prunex");
  app->require_subcommand(0, 1);  // a word that is none should be named, which a missing one would hide
  app->set_version_flag("--version", version_line());
  use_help(*app);
  add_train(*app, {argv}, status);
  add_eval(*app, status);
  add_predict(*app, status);
  add_graph(*app, status);
  add_prune(*app, status);
  add_data(*app, status);
  add_bench(*app, {argv}, status);
  add_compare(*app, status);
  add_report(*app, status);
  add_plan(*app, status);
  add_completion(*app, status);
  add_man_page(*app, status);
  add_options_page(*app, status);
  return app;
}

int run_command_line(int argc, char** argv) {
  const int status = parse_and_run(argc, argv);
  const std::string problem = output_problem();
  if (problem.empty()) return status;
  return fail(status == 0 ? kFailure : status, problem);
}

}  // namespace prunex::tools
