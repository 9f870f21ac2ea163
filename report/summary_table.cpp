#include <algorithm>
#include <array>
#include <string>

#include "report/bandwidth.h"
#include "report/figures.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

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
  std::vector<Cell> row{name,
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
