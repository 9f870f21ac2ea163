#include <fmt/format.h>

#include <algorithm>

#include "report/drawing.h"
#include "report/figures.h"
#include "report/usual_seconds.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

constexpr double kLatency = 1e-4;  // seconds of a message between nodes: docs/communication.md, "Cost"

double wire_seconds(const Cost& cost, double mbit) {
  return cost.bytes / (mbit * kBytesPerMbit) + cost.messages * kLatency;
}

/// The bandwidth at which an overlapping run changes from waiting for the link to waiting for the processor.
std::vector<double> bends(const Cost& cost) {
  const double room = cost.overlap * cost.local - cost.messages * kLatency;
  if (room <= 0) return {};
  return {cost.bytes / room / kBytesPerMbit};
}

/// Between two bends times are c + w / mbit, so the difference is one, too.
std::optional<double> crossing_within(const Cost& a, const Cost& b, Interval mbit) {
  const double at_low = seconds_at(a, mbit.low) - seconds_at(b, mbit.low);
  const double at_high = seconds_at(a, mbit.high) - seconds_at(b, mbit.high);
  if (at_low == at_high || (at_low > 0) == (at_high > 0)) return std::nullopt;
  const double w = (at_low - at_high) / (1 / mbit.low - 1 / mbit.high);
  const double c = at_low - w / mbit.low;
  return -w / c;
}

struct Priced {
  const Variant* variant;
  Cost cost;                   ///< of the whole run
  Cost of_image;               ///< on average: runs may be of different length
  std::vector<Cost> of_seeds;  ///< of an image
};

Cost per_image(Cost cost, const Run& run) {
  const auto images = static_cast<double>(std::max<int64_t>(1, run.summary->samples));
  for (double Cost::*part : {&Cost::local, &Cost::exchange, &Cost::bytes, &Cost::messages}) cost.*part /= images;
  return cost;
}

/// The mean of these.
Cost mean_of(const std::vector<Cost>& costs) {
  Cost mean;
  for (const Cost& cost : costs) {
    for (double Cost::*part : {&Cost::local, &Cost::exchange, &Cost::bytes, &Cost::messages, &Cost::overlap}) {
      mean.*part += cost.*part / static_cast<double>(costs.size());
    }
  }
  return mean;
}

/// But those that begin with another run's network: that run's time and bytes are theirs, too.
std::vector<Priced> priced(const Task& task) {
  std::vector<Priced> all;
  for (const auto& variant : task.variants) {
    const auto cost = cost_of(variant);
    if (!cost || variant.is_later_stage()) continue;
    std::vector<Cost> of_seeds;
    for (const Run* run : variant.finished()) of_seeds.push_back(per_image(cost_of(*run), *run));
    all.push_back({&variant, *cost, mean_of(of_seeds), of_seeds});
  }
  return all;
}

Figure time_figure(const std::vector<Priced>& all) {
  Plot plot{{"link of a node, each way", Unit::kMbit, ScaleKind::kLog},
            {"computed seconds per image", Unit::kSeconds, ScaleKind::kLog},
            {},
            {}};
  for (const auto& [variant, cost, of_image, of_seeds] : all) {
    Series series{variant->name, variant->style, {}, true, true};
    for (const double mbit : usual_bandwidths()) {
      std::vector<double> seconds;
      for (const auto& of_seed : of_seeds) seconds.push_back(seconds_at(of_seed, mbit));
      series.points.push_back({mbit, seconds_at(of_image, mbit), whisker(spread_of(seconds))});
    }
    plot.series.push_back(std::move(series));
  }
  return figure_of(
      "bandwidth", "Time at a bandwidth (computed)", {plot},
      "Computed, not measured: measured seconds of local steps and of the work in the nodes, plus counted bytes over "
      "the link and 0.1 ms per message, over the images that all ranks saw. ddp sends while it computes: only the "
      "longer of both counts, which is kind to it. Of the mean over seeds; band: lowest to highest seed.");
}

Figure front_figure(const Task& task, const std::vector<Priced>& all) {
  Figure figure{.id = "front", .title = "On the Pareto front at a bandwidth (computed)"};
  figure.text =
      "●: no other run has at least the accuracy (mean over seeds) in less computed time of the whole run. Columns: "
      "the link of a node.";
  Table table{{{"run", {}}, {.name = "accuracy", .right = true}}, {}};
  for (const double mbit : usual_bandwidths()) table.columns.push_back({format(mbit, Unit::kMbit), {}});
  for (const auto& [variant, cost, of_image, of_seeds] : all) {
    const Spread accuracy = over_seeds(*variant, accuracy_of);
    table.rows.push_back({variant->name, percent(accuracy.mean, accuracy.half_width)});
  }
  for (const double mbit : usual_bandwidths()) {
    std::vector<Point> points;
    for (const auto& [variant, cost, of_image, of_seeds] : all) {
      points.push_back({seconds_at(cost, mbit), over_seeds(*variant, accuracy_of).mean, std::nullopt});
    }
    for (auto& row : table.rows) row.push_back(" ");
    for (const size_t i : pareto_front(points)) table.rows[i].back() = "●";
  }
  figure.tables = {std::move(table)};
  if (task.variants.size() > all.size())
    figure.missing = "runs that are unfinished, had one node, or began with another run's network";
  return figure;
}

/// H-SADMM, and what exchanges weights with its masks or its rounded messages.
bool is_ours(const Variant& variant) {
  if (variant.finished().empty() || variant.finished().front()->summary->sends_gradients) return false;
  const auto differs = [&](const char* option, const char* usual) {
    const auto value = variant.first().option(option);
    return !value.empty() && value != usual;
  };
  return variant.strategy().starts_with("hsadmm") || differs("payload", "fp32") ||
         (differs("groups", "auto") && differs("groups", "none"));
}

std::string where(const Priced& ours, const Priced& rival) {
  const Interval all{1, 1e6};
  const auto points = crossings(ours.of_image, rival.of_image, all);
  const bool first = seconds_at(ours.of_image, all.low) < seconds_at(rival.of_image, all.low);
  if (points.empty()) return first ? "everywhere" : "nowhere";
  std::string text = first ? "below " : "above ";
  for (size_t i = 0; i < points.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : (first == (i % 2 == 0) ? ", and below " : ", and above "),
                        format(points[i], Unit::kMbit));
  }
  return text;
}

/// A column per run of ours that has a colour, a row per rival.
Figure crossing_figure(const std::vector<Priced>& all) {
  std::vector<const Priced*> columns;
  for (const auto& one : all) {
    if (is_ours(*one.variant) && one.variant->style != Style::kOther) columns.push_back(&one);
  }
  if (columns.empty() || all.size() < 2) {
    return missing_figure("crossings", "Cross-over points (computed)",
                          "wanted finished runs of hsadmm and of another kind, on two nodes or more");
  }
  Figure figure{.id = "crossings", .title = "Cross-over points (computed)"};
  figure.text =
      "Where the run of the column needs less time per image than the rival of the row, from 1 Mbit/s to 1 Tbit/s, by "
      "the same computation. Accuracy is not looked at here.";
  Table table{{{"faster than", {}}}, {}};
  for (const Priced* ours : columns) table.columns.push_back({ours->variant->name, {}});
  for (const auto& rival : all) {
    std::vector<Cell> row{rival.variant->name};
    for (const Priced* ours : columns) row.push_back(ours == &rival ? Cell() : Cell(where(*ours, rival)));
    table.rows.push_back(std::move(row));
  }
  figure.tables = {std::move(table)};
  return figure;
}

}  // namespace

Cost cost_of(const Run& run) {
  const auto& summary = *run.summary;
  const UsualSeconds usual = usual_seconds(run);
  const int64_t messages = summary.messages.between_nodes, flat = summary.messages.among_all;
  const auto direct = static_cast<double>(summary.messages.direct.value_or(0));
  const auto rings = static_cast<double>(messages + flat > 0 ? messages : summary.exchanges) - direct;
  const bool all_own_parts = run.option("strategy") == "hsadmm_flat";  // which no ring carries
  const auto flat_direct = static_cast<double>(summary.messages.flat_direct.value_or(all_own_parts ? flat : 0));
  return {.local = usual.local,
          .exchange = usual.work,
          .bytes = static_cast<double>(summary.inter_node_bytes),
          .messages = 2 * (std::max(0.0, rings) * static_cast<double>(run.nodes() - 1) +
                           (static_cast<double>(flat) - flat_direct) * static_cast<double>(run.ranks() - 1)) +
                      direct + flat_direct,
          .overlap = summary.overlap};
}

std::optional<Cost> cost_of(const Variant& variant) {
  std::vector<Cost> costs;
  for (const Run* run : variant.finished()) costs.push_back(cost_of(*run));
  const Cost mean = mean_of(costs);
  if (mean.bytes == 0) return std::nullopt;
  return mean;
}

double seconds_at(const Cost& cost, double mbit) {
  const double wire = wire_seconds(cost, mbit);
  return cost.exchange + cost.local + std::max(0.0, wire - cost.overlap * cost.local);
}

std::vector<double> crossings(const Cost& a, const Cost& b, Interval mbit) {
  std::vector<double> edges{mbit.low, mbit.high};
  for (const Cost* cost : {&a, &b}) {
    for (const double bend : bends(*cost)) {
      if (bend > mbit.low && bend < mbit.high) edges.push_back(bend);
    }
  }
  std::sort(edges.begin(), edges.end());
  std::vector<double> found;
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    if (const auto crossing = crossing_within(a, b, {edges[i], edges[i + 1]})) found.push_back(*crossing);
  }
  return found;
}

std::vector<double> usual_bandwidths() {
  return {25, 50, 100, 200, 400, 1000, 2500, 10000, 25000, 100000};
}

std::vector<Figure> bandwidth_figures(const Task& task) {
  const auto all = priced(task);
  if (all.empty()) {
    return {missing_figure("bandwidth", "Time at a bandwidth (computed)", "wanted finished runs on two nodes or more")};
  }
  return {time_figure(all), front_figure(task, all), crossing_figure(all)};
}

}  // namespace prunex::report
