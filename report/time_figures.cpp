#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "report/figures.h"
#include "report/phases.h"

namespace prunex::report {
namespace {

std::vector<Sample> exchange_seconds(const Run& run) {
  std::vector<Sample> samples;
  for (const auto& exchange : run.exchanges) {
    samples.push_back({exchange.index, static_cast<double>(exchange.samples), exchange.seconds.exchange()});
  }
  return samples;
}

Figure exchange_figure(const Task& task) {
  const auto series = series_of(task, exchange_seconds, false);
  const Axis x{"training images seen"}, y{"seconds per exchange, mean over ranks", Unit::kSeconds, ScaleKind::kLog};
  Figure figure = figure_of("exchange-time", "Time per exchange", {Plot{x, y, series, {}}});
  figure.text = "Measured: sums in the node, node update and masks, between nodes, duals; waiting for others included.";
  return figure;
}

using Part = double Seconds::*;
constexpr std::array<std::pair<std::string_view, Part>, 6> kParts{{{kPhases[0].words, &Seconds::local},
                                                                   {kPhases[1].words, &Seconds::intra},
                                                                   {kPhases[2].words, &Seconds::project},
                                                                   {kPhases[3].words, &Seconds::inter},
                                                                   {kPhases[4].words, &Seconds::dual},
                                                                   {kPhases[5].words, &Seconds::evaluate}}};
using Parts = std::vector<std::pair<std::string_view, Part>>;

/// Stacked means over the seeds of parts of the seconds, divided by `per`.
Bars parts_of(const Task& task, const Axis& axis, const Parts& parts, double (*per)(const Summary&)) {
  Bars bars{axis, {}, {}};
  for (const auto& [name, part] : parts) bars.parts.emplace_back(name);
  for (const auto& variant : task.variants) {
    const auto mean_of = [&](const Parts& some) {
      return over_seeds(variant, [&](const Run& run) -> std::optional<double> {
        double sum = 0;
        for (const auto& [name, part] : some) sum += run.summary->seconds.*part;
        return sum / std::max(1.0, per(*run.summary));
      });
    };
    Bar bar{variant.name, {}, whisker(mean_of(parts))};
    for (const auto& part : parts) {
      if (const Spread mean = mean_of({part}); mean.count > 0) bar.parts.push_back(mean.mean);
    }
    if (!bar.parts.empty()) bars.bars.push_back(bar);
  }
  return bars;
}

Figure breakdown_figure(const Task& task) {
  Bars bars = parts_of(task, {"mean seconds per exchange", Unit::kSeconds}, {kParts.begin() + 1, kParts.end() - 1},
                       [](const Summary& summary) { return static_cast<double>(summary.exchanges); });
  bars.first_style = 1;  // the colours of budget_figure
  Figure figure = figure_of("breakdown", "Parts of an exchange", bars);
  figure.text =
      "Measured on the machine of the runs; between nodes includes packing and unpacking. Mean over exchanges and "
      "seeds; whisker: of their sum, lowest to highest seed.";
  return figure;
}

Figure budget_figure(const Task& task) {
  Figure figure = figure_of("budget", "Where the time goes",
                            parts_of(task, {"seconds of the whole run", Unit::kSeconds}, {kParts.begin(), kParts.end()},
                                     [](const Summary&) { return 1.0; }));
  figure.text = "Measured; mean over ranks and seeds; whisker: lowest to highest seed.";
  return figure;
}

std::optional<double> images_per_second(const Run& run) {
  const double seconds = training_seconds(run.summary->seconds);
  if (seconds <= 0) return std::nullopt;
  return static_cast<double>(run.summary->samples) / seconds;
}

/// What stays the same when only the ranks change, and with them the share of a step that each has.
std::map<std::string, std::string> family_of(const Variant& variant) {
  auto options = identity(variant.first());
  for (const char* changed : {"nodes", "ranks-per-node", "sites", "batch-size", "local-steps", "threads", "lr"}) {
    options.erase(changed);
  }
  return options;
}

/// Rates by number of ranks, of families that ran with several.
std::vector<Series> rates(const Task& task) {
  std::map<std::map<std::string, std::string>, Series> families;
  for (const auto& variant : task.variants) {
    const Spread rate = over_seeds(variant, images_per_second);
    if (rate.count == 0) continue;
    auto& family =
        families.try_emplace(family_of(variant), Series{variant.name, variant.style, {}, true, true}).first->second;
    family.points.push_back({static_cast<double>(variant.first().ranks()), rate.mean, Interval{rate.low, rate.high}});
  }
  std::vector<Series> series;
  for (auto& [name, family] : families) {
    std::sort(family.points.begin(), family.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    if (family.points.front().x < family.points.back().x) series.push_back(std::move(family));
  }
  return series;
}

Figure scaling_figure(const Task& task) {
  const auto series = rates(task);
  if (series.empty()) {
    return missing_figure(
        "scaling", "Scaling",
        "wanted runs that differ only in --nodes or --ranks-per-node; all of these ran on equal layouts");
  }
  std::set<double> counts;
  for (const auto& one : series) {
    for (const auto& point : one.points) counts.insert(point.x);
  }
  const Axis ranks{"ranks", Unit::kNumber, ScaleKind::kLog, false, {counts.begin(), counts.end()}};
  const Axis rate{"images per second", Unit::kNumber, ScaleKind::kLog};
  const Axis share{"efficiency", Unit::kShare, ScaleKind::kLinear, true};
  auto efficiency = series;
  for (auto& one : efficiency) {
    const auto base = one.points.front();
    const auto efficient = [&](double ranks, double rate) { return rate / ranks / (base.y / base.x); };
    for (auto& point : one.points) {
      const Interval rates = *point.spread;
      point = {point.x, efficient(point.x, point.y),
               Interval{efficient(point.x, rates.low), efficient(point.x, rates.high)}};
    }
  }
  Figure figure = figure_of("scaling", "Scaling", {Plot{ranks, rate, series, {}}, Plot{ranks, share, efficiency, {}}});
  figure.text =
      "Above: training images per second of all ranks, evaluation not in the time. Below: per rank, against the "
      "smallest layout.";
  return figure;
}

}  // namespace

std::vector<Figure> time_figures(const Task& task) {
  return {exchange_figure(task), breakdown_figure(task), budget_figure(task), scaling_figure(task)};
}

}  // namespace prunex::report
