#include <fmt/format.h>

#include "report/bandwidth.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

struct Priced {
  const Variant* variant;
  Cost cost;
};

std::vector<Priced> priced(const Task& task) {
  std::vector<Priced> all;
  for (const auto& variant : task.variants) {
    if (const auto cost = cost_of(variant)) all.push_back({&variant, *cost});
  }
  return all;
}

Figure time_figure(const std::vector<Priced>& all) {
  Plot plot{{"link of a node, each way", Unit::kMbit, ScaleKind::kLog},
            {"computed seconds of the run", Unit::kSeconds, ScaleKind::kLog},
            {},
            {}};
  for (const auto& [variant, cost] : all) {
    Series series{variant->name, variant->style, {}, true, true};
    for (const double mbit : usual_bandwidths()) series.points.push_back({mbit, seconds_at(cost, mbit), std::nullopt});
    plot.series.push_back(std::move(series));
  }
  Figure figure = figure_of("bandwidth", "Time at a bandwidth (computed)", plot);
  for (auto& row : figure.table.rows) row.resize(3);
  figure.table.columns.resize(3);
  figure.text =
      "Computed, not measured: measured seconds of local steps and of the work in the nodes, plus counted bytes over "
      "the "
      "link and 0.1 ms per message. ddp sends while it computes: only the longer of both counts, which is kind to it.";
  return figure;
}

Figure front_figure(const Task& task, const std::vector<Priced>& all) {
  Figure figure{.id = "front", .title = "On the Pareto front at a bandwidth (computed)"};
  figure.text = "Runs that no other run beats in both accuracy (mean over seeds) and computed time.";
  figure.table.columns = {{"run", {}}, {"accuracy", Unit::kShare}};
  for (const double mbit : usual_bandwidths()) figure.table.columns.push_back({format(mbit, Unit::kMbit), {}});
  for (const auto& [variant, cost] : all) {
    figure.table.rows.push_back({variant->name, over_seeds(*variant, accuracy_of).mean});
  }
  for (const double mbit : usual_bandwidths()) {
    std::vector<Point> points;
    for (const auto& [variant, cost] : all) {
      points.push_back({seconds_at(cost, mbit), over_seeds(*variant, accuracy_of).mean, std::nullopt});
    }
    for (auto& row : figure.table.rows) row.push_back(" ");
    for (const size_t i : pareto_front(points)) figure.table.rows[i].back() = "●";
  }
  if (task.variants.size() > all.size()) figure.missing = "runs that are unfinished or had one node are left out";
  return figure;
}

bool is_ours(const Variant& variant) {
  return variant.strategy().starts_with("hsadmm");
}

std::string where(const Priced& ours, const Priced& rival) {
  const Interval all{1, 1e6};
  const auto points = crossings(ours.cost, rival.cost, all);
  const bool first = seconds_at(ours.cost, all.low) < seconds_at(rival.cost, all.low);
  if (points.empty()) return first ? "everywhere" : "nowhere";
  std::string text = first ? "below " : "above ";
  for (size_t i = 0; i < points.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : (first == (i % 2 == 0) ? ", and below " : ", and above "),
                        format(points[i], Unit::kMbit));
  }
  return text;
}

Figure crossing_figure(const std::vector<Priced>& all) {
  Figure figure{.id = "crossings", .title = "Cross-over points (computed)"};
  figure.text =
      "Where a run needs less time than a rival, from 1 Mbit/s to 1 Tbit/s, by the same computation. Accuracy is not "
      "looked at here.";
  figure.table.columns = {{"run", {}}, {"rival", {}}, {"faster", {}}};
  for (const auto& ours : all) {
    if (!is_ours(*ours.variant)) continue;
    for (const auto& rival : all) {
      if (&rival == &ours) continue;
      figure.table.rows.push_back({ours.variant->name, rival.variant->name, where(ours, rival)});
    }
  }
  if (figure.table.rows.empty())
    figure.missing = "wanted finished runs of hsadmm and of another kind, on two nodes or more";
  return figure;
}

}  // namespace

std::vector<Figure> bandwidth_figures(const Task& task) {
  const auto all = priced(task);
  if (all.empty()) {
    return {missing_figure("bandwidth", "Time at a bandwidth (computed)", "wanted finished runs on two nodes or more")};
  }
  return {time_figure(all), front_figure(task, all), crossing_figure(all)};
}

}  // namespace prunex::report
