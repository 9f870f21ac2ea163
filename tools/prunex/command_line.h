// The whole command line: sub-commands, parsing, errors, exit codes, and its standard input, output and error.
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

/// To be called before anything is opened. Those that are closed get a place holder, so that no file or socket takes
/// their number and is written to as if it were one of them; writing to a closed standard output stays an error. A pipe
/// that nobody reads and a file beyond ulimit -f are an error of the write, not the end of the process.
void prepare_standard_streams();

/// Why what was printed did not arrive, such as "cannot write standard output: No space left on device"; empty if it
/// did.
std::string output_problem();

/// Drops what did not arrive, for a command whose results are elsewhere, too: then output_problem() is empty.
void forget_output();

}  // namespace prunex::tools
