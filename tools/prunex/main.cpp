// The command: picks a sub-command, turns errors into one line and an exit code.
#include <fmt/format.h>
#include <malloc.h>

#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include "prunex/say.h"
#include "prunex/version.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/standard_streams.h"

namespace {

constexpr int kFailure = 1, kUsage = 2;

int fail(int status, std::string message) {
  message = message.substr(0, message.find('\n'));
  prunex::say(fmt::format("prunex: {}\n", message));
  return status;
}

/// Training allocates and frees the same large blocks in every step: keep them instead of returning them to the kernel.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
}

int run(int argc, char** argv) {
  CLI::App app("Trains CNNs across machines over slow links and prunes them structurally while they train.", "prunex");
  app.require_subcommand(0, 1);  // a word that is none should be named, which a missing one would hide
  app.set_version_flag("--version", prunex::kVersion);
  app.option_defaults()->always_capture_default();
  int status = 0;
  prunex::tools::add_train(app, {argv}, status);
  prunex::tools::add_eval(app, status);
  prunex::tools::add_predict(app, status);
  prunex::tools::add_graph(app, status);
  prunex::tools::add_prune(app, status);
  prunex::tools::add_bench(app, {argv}, status);
  prunex::tools::add_compare(app, status);
  prunex::tools::add_report(app, status);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) return fail(kUsage, "no command given; prunex --help lists them");
    return status;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ConversionError& error) {
    return fail(kUsage, prunex::tools::explain(error, app));
  } catch (const CLI::ParseError& error) {
    return fail(kUsage, error.what());
  } catch (const std::invalid_argument& error) {
    return fail(kUsage, error.what());
  } catch (const c10::Error& error) {
    return fail(kFailure, error.what_without_backtrace());
  } catch (const std::system_error& error) {
    const std::string output = prunex::tools::output_problem();  // printing throws, and does not say where to
    return fail(kFailure, output.empty() ? error.what() : output);
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  prunex::tools::prepare_standard_streams();
  keep_freed_memory();
  const int status = run(argc, argv);
  const std::string problem = status == 0 ? prunex::tools::output_problem() : "";
  return problem.empty() ? status : fail(kFailure, problem);
}
