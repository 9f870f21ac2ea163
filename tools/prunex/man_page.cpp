// prunex man
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "prunex/version.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

/// Text as roff: hyphens that can be copied, no line that looks like a request.
std::string roff(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (text[i] == '.' || text[i] == '\'')) escaped += "\\&";
    if (text[i] == '-') {
      escaped += "\\-";
    } else if (text[i] == '\\') {
      escaped += "\\e";
    } else {
      escaped += text[i];
    }
  }
  return escaped;
}

std::string options_page(const CLI::App& app) {
  std::string page;
  for (const auto* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    page += fmt::format(".TP\n.I {}\n{}\n", roff(option->get_name(true)), roff(option->get_description()));
  }
  for (const auto& group : app.get_groups()) {
    const auto options = app.get_options(
        [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
    if (group.empty() || options.empty()) continue;
    if (group != "Options") page += fmt::format(".PP\n.I {}\n", roff(group));
    for (const auto* option : options) {
      page += fmt::format(".TP\n.B {}\n{}\n", roff(text_of(*option).heading), roff(text_of(*option).description));
    }
  }
  return page;
}

std::string command_page(const CLI::App& app, const std::string& name) {
  std::string page = fmt::format(".SH \"{}\"\n{}.\n", roff(name), roff(app.get_description()));
  page += options_page(app);
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) page += command_page(*command, name + " " + command->get_name());
  }
  if (!app.get_footer().empty()) page += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(app.get_footer()));
  return page;
}

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH PRUNEX 1 \"\" \"prunex {}\" \"User Commands\"\n", kVersion);
  page += ".SH NAME\nprunex \\- train image classifiers across machines and prune them meanwhile\n";
  page += ".SH SYNOPSIS\n.B prunex\n.I COMMAND\n.RI [ OPTION ...]\n";
  page += fmt::format(".SH DESCRIPTION\n{}\n", roff(app.get_description()));
  page += options_page(app);
  for (const auto* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) page += command_page(*command, "prunex " + command->get_name());
  }
  return page +
         ".SH \"EXIT STATUS\"\n0 after success, 2 for a wrong command line or configuration, 1 for a failure while "
         "running; 128 and the signal's number after a signal.\n";
}

}  // namespace

void add_man_page(CLI::App& app, int& status) {
  const auto run = [&app] { return fmt::print("{}", man_page(app)), 0; };
  add_command(app, {"man", "print the manual page", {}, run}, status).group("");
}

}  // namespace prunex::tools
