#include <algorithm>
#include <map>
#include <utility>

#include "report/figures.h"
#include "report/report.h"

namespace prunex::report {
namespace {

Figure pilot_figure(const std::vector<Pilot>& pilots) {
  Figure figure{.id = "pilots", .title = "Learning rates tried", .folded = true};
  figure.text =
      "Short runs, mean over their seeds; the rate with the best accuracy on held-out training images was taken for "
      "all seeds.";
  Table table{{{"run", {}}, {"learning rate", {}}, {.name = "held-out accuracy", .right = true}, {"seeds", {}}}, {}};
  std::vector<std::pair<std::string, double>> order;
  std::map<std::pair<std::string, double>, std::vector<double>> accuracies;
  for (const auto& [name, rate, accuracy] : pilots) {
    const auto [entry, is_new] = accuracies.try_emplace({name, rate});
    if (is_new) order.push_back(entry->first);
    if (accuracy) entry->second.push_back(*accuracy);
  }
  for (const auto& key : order) {
    const Spread spread = spread_of(accuracies[key]);
    table.rows.push_back({key.first, key.second,
                          spread.count > 0 ? Cell(percent(spread.mean, spread.half_width)) : Cell(),
                          static_cast<double>(spread.count)});
  }
  figure.tables = {std::move(table)};
  return figure;
}

Figure check_figure(const std::vector<Check>& checks) {
  Figure figure{.id = "checks", .title = "Computed and measured time"};
  figure.text =
      "Runs repeated on the emulated cluster (bench/cluster.sh): seconds of training and exchanges. Computed: as "
      "above, with the bytes of the repeated run.";
  Table table{{{"run", {}}, {"link", Unit::kMbit}, {"s computed", {}, 3}, {"s measured", {}, 3}, {"ratio", {}, 3}}, {}};
  for (const auto& [name, mbit, computed, measured] : checks) {
    table.rows.push_back({name, mbit, computed, measured, measured / computed});
  }
  figure.tables = {std::move(table)};
  return figure;
}

Figure failure_figure(const std::vector<Failure>& failures) {
  Figure figure{.id = "failures", .title = "Failed runs"};
  Table table{{{"run", {}}, {"last line of its errors", {}}}, {}};
  for (const auto& [name, error] : failures) table.rows.push_back({name, error});
  figure.tables = {std::move(table)};
  return figure;
}

}  // namespace

std::vector<Figure> comparison_figures(const Findings& findings) {
  std::vector<Figure> figures;
  if (!findings.checks.empty()) figures.push_back(check_figure(findings.checks));
  if (!findings.pilots.empty()) figures.push_back(pilot_figure(findings.pilots));
  if (!findings.failures.empty()) figures.push_back(failure_figure(findings.failures));
  return figures;
}

}  // namespace prunex::report
