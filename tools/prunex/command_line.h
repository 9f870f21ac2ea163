// The whole command line: sub-commands, parsing, errors, exit codes.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace prunex::tools {

/// The application with all sub-commands; each sets `status` once it is parsed. `argv` is what ranks are started with.
std::unique_ptr<CLI::App> make_app(char** argv, int& status);

/// Picks a sub-command and runs it; turns errors into one line on standard error and an exit code: 2 for a bad command
/// line, 1 for a failure.
int run_command_line(int argc, char** argv);

/// Parts of its messages: that no thread can be started; an error of a node of the network, with the file of --model
/// before it, if it is one.
std::string no_more_threads();
std::string name_network(const std::string& message, const CLI::App& app);

}  // namespace prunex::tools
