// Standard input, output and error of the command.
#pragma once

#include <string>

namespace prunex::tools {

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
