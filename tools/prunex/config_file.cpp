#include "tools/prunex/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace prunex::tools {
namespace {

constexpr const char* kOption = "--config";

void set(CLI::Option& option, const CLI::ConfigItem& item) {
  const bool is_flag = option.get_expected_min() == 0;
  if (is_flag) {
    option.add_result(option.get_flag_value(item.name, CLI::ConfigTOML().to_flag(item)));
  } else {
    option.add_result(fmt::format("{}", fmt::join(item.inputs, ",")));  // an array, as the command line writes it
  }
  option.run_callback();
}

// CLI11 reads configuration files for the program's own options only, not for those of a sub-command.
void apply(CLI::App& command, const std::string& source, std::istream& text) {
  for (const auto& item : CLI::ConfigTOML().from_config(text)) {
    CLI::Option* option = item.parents.empty() ? command.get_option_no_throw("--" + item.name) : nullptr;
    if (option == nullptr || !option->get_configurable()) {
      throw std::invalid_argument(fmt::format("{}: '{}' is not an option of {} that a file may set", source,
                                              item.fullname(), command.get_name()));
    }
    if (option->count() == 0) set(*option, item);
  }
}

}  // namespace

void add_config_option(CLI::App& command) {
  command.add_option(kOption, "FILE.toml with any of these options as name = value; flags win")
      ->configurable(false)
      ->group("Run");
}

void apply_config_file(CLI::App& command, const std::string& source, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument(fmt::format("{}: cannot read {}", source, path));
  if (std::filesystem::is_directory(path)) {
    throw std::invalid_argument(fmt::format("{}: got {}, a directory, wanted a file", source, path));
  }
  apply(command, fmt::format("{} {}", source, path), file);
}

void apply_config_text(CLI::App& command, const std::string& source, const std::string& text) {
  std::istringstream stream(text);
  apply(command, source, stream);
}

void apply_config(CLI::App& command) {
  if (command.count(kOption) > 0) apply_config_file(command, kOption, command[kOption]->as<std::string>());
}

}  // namespace prunex::tools
