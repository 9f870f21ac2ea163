// prunex report
#include "report/report.h"

#include <fmt/format.h>

#include "prunex/io/files.h"
#include "prunex/say.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/version.h"

namespace prunex::tools {
namespace {

struct ReportCommand {
  std::vector<std::string> directories;
  std::string output = "report.html";
  std::string json, csv;
  bool quiet = false;
  std::string line;  ///< that says all this
};

int run_report(const ReportCommand& command) {
  refuse_same_file("json", command.json, "output", command.output);
  refuse_same_file("csv", command.csv, "output", command.output);
  refuse_same_file("csv", command.csv, "json", command.json);
  const auto findings = report::find_runs(command.directories);
  for (const auto& [option, path] :
       {std::pair("output", command.output), std::pair("json", command.json), std::pair("csv", command.csv)}) {
    report::refuse_record(fmt::format("`{}`", option), path, findings);
    expect_text_output(option, path);
  }
  const auto report = report::make_report(findings, origin_of(command.line, command.output));
  for (const auto& problem : report.problems) {
    if (!command.quiet) say(fmt::format("prunex: report: {}\n", problem));
  }
  io::write_file_atomically(command.output, report.html);
  if (!command.json.empty()) io::write_file_atomically(command.json, report.json);
  if (!command.csv.empty()) io::write_file_atomically(command.csv, report::exchanges_csv(findings.runs));
  fmt::print("{}\n{}: {} runs\n", report.summary, command.output, findings.runs.size());
  return 0;
}

text::OptionList describe(ReportCommand& command) {
  text::OptionList list;
  list.add("DIR", text::texts(command.directories),
           "run directories, comparisons, or folders that hold such at any depth")
      .must()
      .positional();
  list.add("output", text::text_value(command.output), "the page");
  list.add("json", text::text_value(command.json), "also write the numbers behind the page to this file");
  list.add("csv", text::text_value(command.csv), "also write the metrics of every exchange to this file");
  list.add("quiet", text::flag(command.quiet), "no word on what could not be read");
  return list;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  auto command = std::make_shared<ReportCommand>();
  add_command(
      app,
      {.name = "report",
       .help = "figures and a table of runs, in one HTML file",
       .options = describe(*command),
       .run = [command] { return run_report(*command); },
       .complete =
           [command](text::OptionList& list) { command->line = line_of("report", command->directories, list); }},
      status);
}

}  // namespace prunex::tools
