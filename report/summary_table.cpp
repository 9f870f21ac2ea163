#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "report/bandwidth.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

constexpr std::array<double, 4> kBandwidths{25, 100, 400, 1000};

/// The ddp with the best accuracy, if there is one: what the others are held against.
const Variant* reference(const Task& task) {
  const Variant* best = nullptr;
  double most = -1;
  for (const auto& variant : task.variants) {
    const Spread accuracy = over_seeds(variant, accuracy_of);
    if (variant.strategy() != "ddp" || accuracy.count == 0 || accuracy.mean <= most) continue;
    best = &variant;
    most = accuracy.mean;
  }
  return best;
}

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

std::map<std::string, double> accuracies(const Variant& variant) {
  std::map<std::string, double> by_seed;
  for (const Run* run : variant.finished()) {
    if (const auto accuracy = accuracy_of(*run)) by_seed[run->option("seed")] = *accuracy;
  }
  return by_seed;
}

Cell points_cell(const Variant& variant, const Variant* ddp) {
  const auto mine = accuracies(variant);
  if (ddp == nullptr || ddp == &variant || mine.empty()) return {};
  const Difference points = difference(mine, accuracies(*ddp));
  const std::string sign = points.mean > 0 ? "+" : points.mean < 0 ? "−" : "";
  const std::string text = sign + plain(std::abs(100 * points.mean), 3);
  return points.half_width == 0 ? text : text + " ± " + plain(100 * points.half_width, 2);
}

std::vector<Cell> row_of(const Variant& variant, const Variant* ddp) {
  const auto done = variant.finished().size();
  std::vector<Cell> row{variant.name,
                        done == variant.runs.size()
                            ? std::to_string(done)
                            : std::to_string(done) + " of " + std::to_string(variant.runs.size()),
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

Table summary_table(const Task& task) {
  Table table{{{"run", {}},
               {"seeds", {}},
               {"accuracy", {}},
               {"points against ddp", {}},
               {"bytes per image", Unit::kBytes, 3},
               {"times fewer than DDP", {}, 3}},
              {}};
  for (const double mbit : kBandwidths) table.columns.push_back({"s at " + format(mbit, Unit::kMbit), {}, 3});
  table.columns.push_back({"s measured", {}, 3});
  table.columns.push_back({"parameters", Unit::kNumber, 3});
  table.columns.push_back({"MACs", Unit::kNumber, 3});
  const Variant* ddp = reference(task);
  for (const auto& variant : task.variants) table.rows.push_back(row_of(variant, ddp));
  return table;
}

}  // namespace prunex::report
