#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "report/figures.h"
#include "report/page.h"
#include "report/text_table.h"

namespace prunex::report {
namespace {

using nlohmann::ordered_json;

// What a reader wants to know first, in this order; the rest follows if variants differ in it.
const std::vector<std::string> kTold = {
    "dataset",   "train-limit", "model",      "width", "nodes",  "ranks-per-node", "sites",   "strategy", "epochs",
    "exchanges", "local-steps", "batch-size", "lr",    "groups", "keep",           "payload", "sparse",   "prune-to"};

void append(std::vector<Figure>& figures, std::vector<Figure> more) {
  for (auto& figure : more) figures.push_back(std::move(figure));
}

std::vector<Figure> figures_of(const Task& task) {
  std::vector<Figure> figures;
  append(figures, accuracy_figures(task));
  append(figures, bandwidth_figures(task));
  append(figures, traffic_figures(task));
  append(figures, time_figures(task));
  append(figures, {timeline_figure(task)});
  append(figures, residual_figures(task));
  append(figures, network_figures(task));
  return figures;
}

std::string quoted(const std::string& value) {
  return value.empty() || value.find(' ') != std::string::npos ? "'" + value + "'" : value;
}

bool is_said(const std::string& key, const std::string& value) {
  const std::set<std::string> silent{"width=1",     "train-limit=0", "sites=1",
                                     "exchanges=0", "payload=fp32",  "sparse=none"};
  return !value.empty() && !silent.contains(key + "=" + value);
}

std::string shared_command(const Task& task) {
  std::string command = "prunex train";
  for (const auto& key : kTold) {
    const auto found = task.shared.find(key);
    if (found != task.shared.end() && is_said(key, found->second))
      command += fmt::format(" --{} {}", key, quoted(found->second));
  }
  return command + (task.variants.size() > 1 ? " …" : "");
}

/// Those of the variant's options that not all share.
std::string own_options(const Task& task, const Variant& variant) {
  std::string words;
  for (const auto& [key, value] : identity(variant.first())) {
    if (!task.shared.contains(key)) words += fmt::format("{}--{} {}", words.empty() ? "" : " ", key, quoted(value));
  }
  return words;
}

std::set<size_t> seed_counts(const Task& task) {
  std::set<size_t> counts;
  for (const auto& variant : task.variants) counts.insert(variant.runs.size());
  return counts;
}

std::string processors_of(const Task& task) {
  std::set<std::string> names;
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) names.insert(run->processor);
  }
  names.erase("");
  std::string text;
  for (const auto& name : names) text += (text.empty() ? " Processor: " : "; others on ") + name;
  return text.empty() ? "" : text + ".";
}

/// "2 nodes x 1 rank"; empty if the run does not hold it.
std::string layout_of(const Run& run) {
  const auto ranks = run.option("ranks-per-node");
  if (ranks.empty() && run.option("nodes").empty()) return "";
  const bool one = ranks.empty() || ranks == "1";
  return fmt::format("{} x {}", count_of(static_cast<size_t>(run.nodes()), "node"), one ? "1 rank" : ranks + " ranks");
}

std::string setup_of(const Task& task) {
  std::set<std::string> layouts;
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) layouts.insert(layout_of(*run));
  }
  layouts.erase("");
  std::string places;
  for (const auto& layout : layouts) places += (places.empty() ? "" : " or ") + layout;
  if (places.empty()) places = "layout unknown";
  const auto counts = seed_counts(task);
  const std::string seeds = counts.size() == 1 ? count_of(*counts.begin(), "seed")
                                               : fmt::format("{} to {} seeds", *counts.begin(), *counts.rbegin());
  return fmt::format("{}; {}; {}.{}", task.title, places, seeds, processors_of(task));
}

Table runs_table(const Task& task) {
  Table table{{{"run", {}}, {"its own options", {}}, {"seed", {}}, {"directory", {}}, {"state", {}}}, {}};
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) {
      const bool first = run == variant.runs.front();
      const auto state =
          run->summary ? "finished" : fmt::format("{}, not finished", count_of(run->exchanges.size(), "exchange"));
      table.rows.push_back({first ? variant.name : "", first ? own_options(task, variant) : "", run->option("seed"),
                            run->directory, state});
    }
  }
  return table;
}

Section section_of(const Task& task) {
  return {
      .title = task.title,
      .setup = setup_of(task),
      .command = shared_command(task),
      .summary = summary_table(task),
      .note =
          "Accuracy: of the consensus model on the test images, mean over finished seeds ± half the 95 % confidence "
          "interval (Student's t). Bytes: counted, sent by one node, per training image; times fewer than averaging "
          "fp32 gradients in every one of the same steps (inter_node_bytes_ddp). Seconds (s) at a bandwidth: computed. "
          "Measured: training and exchanges on the runs' own machine. Parameters and MACs: of the product.",
      .figures = figures_of(task),
      .runs = runs_table(task)};
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

ordered_json to_json(const Section& section) {
  ordered_json figures = ordered_json::array();
  for (const auto& figure : section.figures) {
    ordered_json data = to_json(figure.table);
    for (const auto& table : figure.more_tables) {
      for (auto& row : to_json(table)) data.push_back(std::move(row));
    }
    figures.push_back({{"id", figure.id}, {"title", figure.title}, {"missing", figure.missing}, {"data", data}});
  }
  return {{"title", section.title},     {"setup", section.setup},
          {"command", section.command}, {"summary", to_json(section.summary)},
          {"figures", figures},         {"runs", to_json(section.runs)}};
}

Figure pilot_figure(const std::vector<Pilot>& pilots) {
  Figure figure{.id = "pilots", .title = "Learning rates tried"};
  figure.text =
      "Short runs, mean over their seeds; the rate with the best accuracy on held-out training images was taken for "
      "all seeds.";
  figure.table.columns = {{"run", {}}, {"learning rate", {}}, {"held-out accuracy", {}}, {"seeds", {}}};
  std::vector<std::pair<std::string, double>> order;
  std::map<std::pair<std::string, double>, std::vector<double>> accuracies;
  for (const auto& [name, rate, accuracy] : pilots) {
    const auto [entry, is_new] = accuracies.try_emplace({name, rate});
    if (is_new) order.push_back(entry->first);
    if (accuracy) entry->second.push_back(*accuracy);
  }
  for (const auto& key : order) {
    const Spread spread = spread_of(accuracies[key]);
    figure.table.rows.push_back({key.first, key.second,
                                 spread.count > 0 ? Cell(percent(spread.mean, spread.half_width)) : Cell(),
                                 static_cast<double>(spread.count)});
  }
  return figure;
}

Figure check_figure(const std::vector<Check>& checks) {
  Figure figure{.id = "checks", .title = "Computed and measured time"};
  figure.text =
      "Runs repeated on the emulated cluster (bench/cluster.sh): seconds of training and exchanges. Computed: as "
      "above, with the bytes of the repeated run.";
  figure.table.columns = {{"run", {}}, {"link", Unit::kMbit}, {"s computed", {}}, {"s measured", {}}, {"ratio", {}, 3}};
  for (const auto& [name, mbit, computed, measured] : checks) {
    figure.table.rows.push_back({name, mbit, computed, measured, measured / computed});
  }
  return figure;
}

Figure failure_figure(const std::vector<Failure>& failures) {
  Figure figure{.id = "failures", .title = "Failed runs"};
  figure.table.columns = {{"run", {}}, {"last line of its errors", {}}};
  for (const auto& [name, error] : failures) figure.table.rows.push_back({name, error});
  return figure;
}

std::vector<Figure> others(const Findings& findings) {
  std::vector<Figure> figures;
  if (!findings.checks.empty()) figures.push_back(check_figure(findings.checks));
  if (!findings.pilots.empty()) figures.push_back(pilot_figure(findings.pilots));
  if (!findings.failures.empty()) figures.push_back(failure_figure(findings.failures));
  return figures;
}

}  // namespace

Report make_report(const Findings& findings, const std::string& command) {
  Page page{
      .title = "prunex report", .command = command, .comparisons = findings.comparisons, .others = others(findings)};
  for (const auto& task : tasks_of(findings.runs)) page.sections.push_back(section_of(task));
  if (page.sections.size() == 1) page.title = page.sections[0].title;
  for (const auto& run : findings.runs) {
    page.problems.insert(page.problems.end(), run.problems.begin(), run.problems.end());
  }
  ordered_json json{{"command", command}, {"tasks", ordered_json::array()}};
  std::string summary;
  for (const auto& section : page.sections) {
    json["tasks"].push_back(to_json(section));
    summary += section.setup + "\n" + to_text(section.summary);
  }
  for (const auto& figure : page.others) json[figure.id] = to_json(figure.table);
  return {.html = to_html(page), .json = json.dump(1) + "\n", .summary = summary, .problems = page.problems};
}

}  // namespace prunex::report
