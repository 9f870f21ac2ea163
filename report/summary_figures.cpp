#include <array>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/figures.h"
#include "report/report.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

/// A rate that a comparison tried for a run.
struct Tried {
  std::string run, comparison;
  double rate = 0;

  auto operator<=>(const Tried&) const = default;
};

/// A rate of which a run failed has no accuracy: none is chosen by the runs that are left.
std::string accuracy_text(const std::vector<std::optional<double>>& accuracies) {
  std::vector<double> known;
  for (const auto& accuracy : accuracies) {
    if (!accuracy) return "";
    known.push_back(*accuracy);
  }
  const Spread spread = spread_of(known);
  return percent(spread.mean, spread.half_width);
}

Figure pilot_figure(const std::vector<Pilot>& pilots) {
  Figure figure{.id = "pilots", .title = "Learning rates tried", .folded = true};
  figure.text =
      "Short runs, mean over their seeds; the rate with the best accuracy on held-out training images was taken for "
      "all seeds.";
  Table table{{{"run", {}},
               {"comparison", {}},
               {"learning rate", {}},
               {.name = "held-out accuracy", .right = true},
               {"seeds", {}}},
              {}};
  std::vector<Tried> order;
  std::map<Tried, std::vector<std::optional<double>>> accuracies;
  std::set<std::string> comparisons;
  for (const auto& pilot : pilots) {
    const auto [entry, is_new] = accuracies.try_emplace({pilot.name, pilot.comparison, pilot.rate});
    if (is_new) order.push_back(entry->first);
    entry->second.push_back(pilot.accuracy);
    comparisons.insert(pilot.comparison);
  }
  for (const auto& tried : order) {
    const auto& of_seeds = accuracies[tried];
    table.rows.push_back({tried.run, comparisons.size() > 1 ? Cell(tried.comparison) : Cell(), tried.rate,
                          accuracy_text(of_seeds), static_cast<double>(of_seeds.size())});
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

constexpr std::array<double, 4> kBandwidths{25, kUsualMbit, 400, 1000};

std::optional<double> factor(const Run& run) {
  if (run.summary->inter_node_bytes == 0 || run.summary->inter_node_bytes_ddp == 0) return std::nullopt;
  return static_cast<double>(run.summary->inter_node_bytes_ddp) / static_cast<double>(run.summary->inter_node_bytes);
}

Cell mean_of(const Variant& variant, const Quantity& quantity) {
  const Spread spread = over_seeds(variant, quantity);
  return spread.count > 0 ? Cell(spread.mean) : Cell();
}

Cell mean_of(const Variant& variant, int64_t Summary::*field) {
  return mean_of(variant, [field](const Run& run) { return static_cast<double>((*run.summary).*field); });
}

Cell accuracy_cell(const Variant& variant) {
  const Spread spread = over_seeds(variant, accuracy_of);
  return spread.count > 0 ? Cell(percent(spread.mean, spread.half_width)) : Cell();
}

Cell points_cell(const Variant& variant, const Variant* ddp) {
  const auto mine = by_seed(variant, accuracy_of);
  if (ddp == nullptr || ddp == &variant || mine.empty()) return {};
  return points_text(difference(mine, by_seed(*ddp, accuracy_of)));
}

std::vector<Cell> row_of(const Variant& variant, const Variant* ddp) {
  const auto done = variant.finished().size();
  Cell name(variant.name);
  name.style = variant.style;
  std::vector<Cell> row{
      name,
      done == variant.seeds() ? std::to_string(done) : std::to_string(done) + " of " + std::to_string(variant.seeds()),
      accuracy_cell(variant),
      points_cell(variant, ddp),
      mean_of(variant, bytes_per_sample),
      mean_of(variant, factor)};
  const auto cost = cost_of(variant);
  for (const double mbit : kBandwidths) row.push_back(cost ? Cell(seconds_at(*cost, mbit)) : Cell());
  row.push_back(mean_of(variant, [](const Run& run) { return training_seconds(run.summary->seconds); }));
  row.push_back(mean_of(variant, &Summary::parameters_compact));
  row.push_back(mean_of(variant, &Summary::macs_compact));
  return row;
}

}  // namespace

std::vector<Figure> comparison_figures(const Findings& findings) {
  std::vector<Figure> figures;
  if (!findings.checks.empty()) figures.push_back(check_figure(findings.checks));
  if (!findings.pilots.empty()) figures.push_back(pilot_figure(findings.pilots));
  if (!findings.failures.empty()) figures.push_back(failure_figure(findings.failures));
  return figures;
}

Table summary_table(const Task& task) {
  Table table{{{"run", {}},
               {.name = "seeds", .right = true, .detail = true},
               {.name = "accuracy", .right = true},
               {.name = "points against ddp", .right = true},
               {"bytes per image", Unit::kBytes, 3},
               {"times fewer than DDP", {}, 3}},
              {}};
  for (const double mbit : kBandwidths) {
    const bool usual = mbit == kUsualMbit;
    table.columns.push_back({.name = "s at " + format(mbit, Unit::kMbit), .digits = 3, .detail = !usual});
  }
  table.columns.push_back({.name = "s measured", .digits = 3});
  table.columns.push_back({"parameters", Unit::kNumber, 3});
  table.columns.push_back({.name = "MACs", .unit = Unit::kNumber, .digits = 3, .detail = true});
  const Variant* ddp = reference(task);
  for (const auto& variant : task.variants) table.rows.push_back(row_of(variant, ddp));
  return table;
}

}  // namespace prunex::report
