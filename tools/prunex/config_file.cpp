#include "tools/prunex/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "prunex/text/one_line.h"
#include "prunex/text/read_file.h"
#include "prunex/text/settings.h"
#include "tools/prunex/did_you_mean.h"
#include "tools/prunex/usage_errors.h"

namespace prunex::tools {
namespace {

constexpr const char* kOption = "--config";

bool is_flag(const CLI::Option& option) {
  return option.get_expected_min() == 0;
}

std::vector<std::string> names_in_files(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options({})) {
    if (option->get_configurable()) names.push_back(option->get_single_name());
  }
  return names;
}

void expect_kind(const CLI::Option& option, const text::Setting& setting) {
  if (!is_flag(option) || setting.kind == text::SettingKind::kSwitch) return;
  throw std::invalid_argument(
      fmt::format("--{}: got '{}', wanted true or false, without quotes", setting.name, text::one_line(setting.value)));
}

void set(CLI::App& command, CLI::Option& option, const text::Setting& setting) {
  expect_kind(option, setting);
  try {
    option.add_result(is_flag(option) ? option.get_flag_value(setting.name, setting.value) : setting.value);
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(explain(error, command));
  }
}

void apply(CLI::App& command, const std::string& source, std::string_view text) {
  for (const auto& setting : text::read_settings(text, source)) {
    try {
      CLI::Option* option = command.get_option_no_throw("--" + setting.name);
      if (option == nullptr || !option->get_configurable()) {
        throw std::invalid_argument(fmt::format("'{}' is not an option of {} that a file may set{}",
                                                text::one_line(setting.name), command.get_name(),
                                                did_you_mean(setting.name, names_in_files(command))));
      }
      if (option->count() == 0) set(command, *option, setting);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}:{}: {}", source, setting.line, error.what()));
    }
  }
}

/// What the option has now, as on a command line; nothing if it was neither given nor has a default.
std::optional<std::string> value_of(const CLI::Option& option) {
  const auto given = option.reduced_results();
  if (!given.empty()) return fmt::format("{}", fmt::join(given, ","));
  if (!option.get_default_str().empty()) return option.get_default_str();
  if (is_flag(option)) return "false";
  return option.get_run_callback_for_default() ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

void add_config_option(CLI::App& command) {
  command.add_option(kOption, "FILE.toml with any of these options as name = value; flags win")
      ->configurable(false)
      ->group("Run");
}

void apply_config_file(CLI::App& command, const std::string& source, const std::string& path) {
  std::string text;
  try {
    text = text::read_file(path, text::kLargestToml);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}: {}", source, path, error.what()));
  }
  apply(command, fmt::format("{} {}", source, path), text);
}

void apply_config_text(CLI::App& command, const std::string& source, const std::string& text) {
  apply(command, source, text);
}

void apply_config(CLI::App& command) {
  if (command.count(kOption) > 0) apply_config_file(command, kOption, command[kOption]->as<std::string>());
}

std::string configuration_of(const CLI::App& command) {
  std::string lines;
  for (const CLI::Option* option : command.get_options({})) {
    const auto value = option->get_configurable() ? value_of(*option) : std::nullopt;
    if (value) lines += text::setting_line(option->get_single_name(), *value);
  }
  return lines;
}

}  // namespace prunex::tools
