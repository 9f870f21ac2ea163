// The sub-commands. Each adds its options to the command line and returns what to do once they are parsed.
#pragma once

#include <CLI/CLI.hpp>

namespace prunex::tools {

/// What main() was called with: a launcher starts the ranks with the same arguments.
struct Invocation {
  char** argv = nullptr;
};

/// Adds a sub-command; its callback sets `status` to the exit code or throws.
void add_train(CLI::App& app, Invocation invocation, int& status);
void add_eval(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_graph(CLI::App& app, int& status);
void add_prune(CLI::App& app, int& status);
void add_bench(CLI::App& app, Invocation invocation, int& status);
void add_compare(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);

/// Hidden commands that print what an installation has: completion for a shell, and the manual page.
void add_completion(CLI::App& app);
void add_man_page(CLI::App& app);

}  // namespace prunex::tools
