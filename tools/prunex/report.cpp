// prunex report
#include "report/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "prunex/io/atomic_file.h"
#include "prunex/say.h"
#include "report/study.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/report_origin.h"

namespace prunex::tools {
namespace {

struct ReportCommand {
  std::vector<std::string> directories;
  std::string output = "report.html";
  std::string json;
};

std::string line_of(const ReportCommand& command) {
  std::string line = "prunex report";
  for (const auto& directory : command.directories) line += " " + report::quoted(directory);
  if (command.output != ReportCommand().output) line += " --output " + report::quoted(command.output);
  if (!command.json.empty()) line += " --json " + report::quoted(command.json);
  return line;
}

int run_report(const ReportCommand& command) {
  if (!command.json.empty()) refuse_same_file("--json", command.json, "--output", command.output);
  const auto findings = report::find_runs(command.directories);
  const auto report = report::make_report(findings, origin_of(line_of(command), command.output));
  for (const auto& problem : report.problems) say(fmt::format("prunex: report: {}\n", problem));
  io::write_file_atomically(command.output, report.html);
  if (!command.json.empty()) io::write_file_atomically(command.json, report.json);
  fmt::print("{}\n{}: {} runs\n", report.summary, command.output, findings.runs.size());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  auto* sub = app.add_subcommand("report", "figures and a table of runs, in one HTML file");
  auto command = std::make_shared<ReportCommand>();
  sub->add_option("DIR", command->directories, "run directories, comparisons, or folders that hold such at any depth")
      ->required();
  sub->add_option("--output", command->output, "the page");
  sub->add_option("--json", command->json, "also write the numbers behind the page to this file");
  sub->callback([command, &status] { status = run_report(*command); });
}

}  // namespace prunex::tools
