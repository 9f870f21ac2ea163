#include "tools/prunex/command_line.h"

#include <fmt/format.h>

#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "prunex/say.h"
#include "prunex/text/one_line.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"
#include "tools/prunex/standard_streams.h"
#include "tools/prunex/usage_errors.h"
#include "tools/prunex/version.h"

namespace prunex::tools {
namespace {

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
      "Trains CNNs across machines over slow links and prunes them structurally while they train.", "prunex");
  app->require_subcommand(0, 1);  // a word that is none should be named, which a missing one would hide
  app->set_version_flag("--version", version_line());
  use_help(*app);
  add_train(*app, {argv}, status);
  add_eval(*app, status);
  add_predict(*app, status);
  add_graph(*app, status);
  add_prune(*app, status);
  add_bench(*app, {argv}, status);
  add_compare(*app, status);
  add_report(*app, status);
  add_completion(*app, status);
  add_man_page(*app, status);
  add_options_page(*app, status);
  return app;
}

int run_command_line(int argc, char** argv) {
  const int status = parse_and_run(argc, argv);
  const std::string problem = status == 0 ? output_problem() : "";
  return problem.empty() ? status : fail(kFailure, problem);
}

}  // namespace prunex::tools
