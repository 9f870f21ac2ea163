// --config FILE.toml, and the configuration that a run leaves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace prunex::tools {

/// Adds --config to a command.
void add_config_option(CLI::App& command);

/// Takes what the file of --config, lines of `name = value`, says for the options that the command line did not set;
/// to be called first in the command's callback. A file that cannot be read, or that names what is no option, is a
/// std::invalid_argument that names file and line.
void apply_config(CLI::App& command);

/// The same for a text that `source` stands for.
void apply_config_text(CLI::App& command, const std::string& source, const std::string& text);

/// The same for a file that the option `source` led to.
void apply_config_file(CLI::App& command, const std::string& source, const std::string& path);

/// A file for --config with every option that one may set, as it is now. Throws std::invalid_argument that names the
/// option whose value such a file cannot hold.
std::string configuration_of(const CLI::App& command);

}  // namespace prunex::tools
