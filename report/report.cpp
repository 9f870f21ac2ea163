#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "prunex/text/json.h"
#include "report/figures.h"
#include "report/format.h"
#include "report/page.h"
#include "report/statistics.h"
#include "report/tasks.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

using nlohmann::ordered_json;

constexpr size_t kTerminalWidth = 100;

std::vector<Chapter> chapters_of(const Task& task) {
  auto time = time_figures(task);
  time.push_back(timeline_figure(task));
  auto network = network_figures(task);
  network.push_back(answers_figure(task));
  network.push_back(mistakes_figure(task));
  return {{"Accuracy and what it costs", accuracy_figures(task)},
          {"At other bandwidths", bandwidth_figures(task)},
          {"What is sent", traffic_figures(task)},
          {"Time", std::move(time)},
          {"The network", network},
          {"Residuals of ADMM", residual_figures(task)}};
}

/// "a, b"; empty without names.
std::string joined(const std::set<std::string>& names, const std::string& between) {
  std::string text;
  for (const auto& name : names) {
    if (!name.empty()) text += (text.empty() ? "" : between) + name;
  }
  return text;
}

/// "2 nodes x 1 rank"; empty if the run does not hold it.
std::string layout_of(const Run& run) {
  const auto ranks = run.option("ranks-per-node");
  if (ranks.empty() && run.option("nodes").empty()) return "";
  const bool one = ranks.empty() || ranks == "1";
  return fmt::format("{} x {}", count_of(static_cast<size_t>(run.nodes()), "node"), one ? "1 rank" : ranks + " ranks");
}

std::string setup_of(const Task& task) {
  std::set<std::string> layouts, machines, precisions;
  std::set<size_t> counts;
  for (const auto& variant : task.variants) {
    counts.insert(variant.seeds());
    for (const Run* run : variant.runs) {
      layouts.insert(layout_of(*run));
      machines.insert(run->machine());
      if (run->summary) precisions.insert(run->summary->precision);  // empty in older records
    }
  }
  const std::string places = joined(layouts, " or "), processors = joined(machines, "; others on "),
                    arithmetic = joined(precisions, " and ");
  const std::string seeds = counts.size() == 1 ? count_of(*counts.begin(), "seed")
                                               : fmt::format("{} to {} seeds", *counts.begin(), *counts.rbegin());
  return fmt::format("{}; {}; {}.{}{}", task.title, places.empty() ? "layout unknown" : places, seeds,
                     processors.empty() ? "" : " Processor: " + processors + ".",
                     arithmetic.empty() || precisions.count("") > 0 ? "" : " Arithmetic: " + arithmetic + ".");
}

Table own_options_table(const Task& task) {
  Table table{{{"run", {}}, {"its own options", {}}}, {}};
  for (const auto& variant : task.variants) {
    if (const auto own = own_options(task, variant); !own.empty()) table.rows.push_back({variant.name, own});
  }
  return table;
}

Table runs_table(const Task& task, const std::string& folder) {
  Table table{{{"run", {}}, {.name = "seed", .right = true}, {"state", {}}, {"commit", {}}, {"directory", {}}}, {}};
  for (const auto& variant : task.variants) {
    const auto repeated = variant.repeated();
    for (const Run* run : variant.runs) {
      std::string state = fmt::format("{}, not finished", count_of(run->exchanges.size(), "exchange"));
      if (run->summary) state = "finished";
      if (std::find(repeated.begin(), repeated.end(), run) != repeated.end()) state += ", the same seed again";
      Cell directory(run->directory);
      directory.link = link_to(run->directory, folder);
      table.rows.push_back({variant.name, run->option("seed"), state, run->commit, directory});
    }
  }
  return table;
}

Section section_of(const Task& task, const std::string& folder) {
  return {
      .title = task.title,
      .verdict = verdict_of(task),
      .setup = setup_of(task),
      .summary = summary_table(task),
      .note =
          "Most accurate first. Accuracy: of the consensus model on the test images, mean over finished seeds ± half "
          "the 95 % confidence interval (Student's t). No difference shown: the 95 % interval of the difference, over "
          "pairs of equal seeds where there are two or more, holds 0; each pair by itself. Bytes: counted, sent by one "
          "node, "
          "per training image; times fewer than averaging fp32 gradients in every one of the same steps "
          "(inter_node_bytes_ddp). Seconds (s), of the whole run, at a bandwidth: computed. Measured: training and "
          "exchanges on the runs' "
          "own machine. Parameters and multiply-accumulates (MACs): of the product. A line before a name is the one in "
          "the plots, at most six of which have colours.",
      .differences = difference_figure(task),
      .chapters = chapters_of(task),
      .command = shared_command(task),
      .own_options = own_options_table(task),
      .runs = runs_table(task, folder)};
}

/// Rows that name their columns.
ordered_json to_json(const Table& table) {
  ordered_json rows = ordered_json::array();
  for (const auto& cells : table.rows) {
    ordered_json row = ordered_json::object();
    for (size_t i = 0; i < cells.size(); ++i) {
      auto& value = row[table.columns[i].name];
      if (cells[i].number) value = *cells[i].number;
      if (!cells[i].word.empty()) value = cells[i].word;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json to_json(const Figure& figure) {
  ordered_json data = ordered_json::array();
  for (const auto& table : figure.tables) {
    for (auto& row : to_json(table)) data.push_back(std::move(row));
  }
  return data;
}

ordered_json to_json(const Section& section) {
  ordered_json figures = ordered_json::array();
  const auto add = [&figures](const Figure& figure) {
    figures.push_back(
        {{"id", figure.id}, {"title", figure.title}, {"missing", figure.missing}, {"data", to_json(figure)}});
  };
  if (!section.differences.is_empty()) add(section.differences);
  for (const auto& chapter : section.chapters) {
    for (const auto& figure : chapter.figures) add(figure);
  }
  return {{"title", section.title},       {"verdict", section.verdict}, {"setup", section.setup},
          {"command", section.command},   {"figures", figures},         {"summary", to_json(section.summary)},
          {"runs", to_json(section.runs)}};
}

std::string to_text(const Section& section) {
  std::string text = wrapped(cleaned(section.setup), kTerminalWidth) + "\n";
  for (const auto& sentence : section.verdict) text += wrapped(cleaned(sentence), kTerminalWidth) + "\n";
  text += to_text(section.summary, kTerminalWidth);
  for (const auto& table : section.differences.tables) {
    text += cleaned(section.differences.title) + "\n" + to_text(table, kTerminalWidth);
  }
  return text;
}

/// "Made 2026-01-02 by prunex 0.1.0; the runs by 0.1.0, commits a, b."
std::string made_by(const Origin& origin, const std::vector<Run>& runs) {
  std::set<std::string> versions, commits, libraries;
  for (const auto& run : runs) {
    if (run.summary) versions.insert(run.summary->version);
    commits.insert(run.commit);
    libraries.insert(run.libtorch);
  }
  const std::string version = joined(versions, ", "), commit = joined(commits, ", "), library = joined(libraries, ", ");
  std::string text = "Made";
  if (!origin.date.empty()) text += " " + origin.date;
  if (!origin.version.empty()) text += " by prunex " + origin.version;
  if (!version.empty()) text += "; the runs by prunex " + version;
  if (!commit.empty()) text += ", commits " + commit;
  if (!library.empty()) text += ", LibTorch " + library;
  return text + ".";
}

Footer footer_of(const Findings& findings, const Origin& origin) {
  Footer footer{.missing = missing_of(findings),
                .origins = origins_of(findings.runs),
                .comparisons = findings.comparisons,
                .made = made_by(origin, findings.runs),
                .command = origin.command};
  for (const auto& run : findings.runs) {
    for (const auto& problem : run.problems) footer.problems.push_back(cleaned(problem));
  }
  for (const auto& directory : findings.directories) {
    footer.sources.emplace_back(directory);
    footer.sources.back().link = link_to(directory, origin.folder);
  }
  return footer;
}

/// Figures without anything to see become lines of the footer.
void gather_missing(Page& page, const std::vector<Task>& tasks) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    auto lines = missing_of(tasks[i]);
    for (auto& line : take_missing(page.sections[i].chapters)) lines.push_back(std::move(line));
    const std::string whose = tasks.size() > 1 ? tasks[i].title + ": " : "";
    for (const auto& line : lines) page.footer.missing.push_back(whose + line);
  }
}

}  // namespace

Report make_report(const Findings& findings, const Origin& origin) {
  Page page{.title = "prunex report", .others = comparison_figures(findings), .footer = footer_of(findings, origin)};
  auto tasks = tasks_of(findings.runs);
  ordered_json json{{"command", origin.command},
                    {"date", origin.date},
                    {"version", origin.version},
                    {"tasks", ordered_json::array()}};
  std::string summary;
  for (auto& task : tasks) {
    arrange(task);
    page.sections.push_back(section_of(task, origin.folder));
    json["tasks"].push_back(to_json(page.sections.back()));
    if (!summary.empty()) summary += '\n';
    summary += to_text(page.sections.back());
  }
  if (page.sections.size() == 1) page.title = page.sections[0].title;
  gather_missing(page, tasks);
  json["missing"] = page.footer.missing;
  json["origins"] = page.footer.origins;
  for (const auto& figure : page.others) json[figure.id] = to_json(figure);
  return {.html = to_html(page),
          .json = text::json_text(json, 1) + "\n",
          .summary = summary,
          .problems = page.footer.problems};
}

}  // namespace prunex::report
