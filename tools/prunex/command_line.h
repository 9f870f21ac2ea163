// The whole command line: sub-commands, parsing, errors, exit codes.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace prunex::tools {

/// The application with all sub-commands; each sets `status` once it is parsed. `argv` is what ranks are started with.
std::unique_ptr<CLI::App> make_app(char** argv, int& status);

/// Picks a sub-command and runs it; turns errors into one line on standard error and an exit code: 2 for a bad command
/// line, 1 for a failure.
int run_command_line(int argc, char** argv);

}  // namespace prunex::tools
