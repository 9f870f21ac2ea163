#include <fmt/format.h>

#include <algorithm>

#include "report/figures.h"
#include "report/plot.h"

namespace prunex::report {
namespace {

constexpr size_t kMostStrips = 28, kMostPictures = 4;

/// Images per rank and step.
double batch_of(const Run& run) {
  const auto& last = run.exchanges.back();
  return static_cast<double>(last.samples) /
         std::max(1.0, static_cast<double>(last.step) * static_cast<double>(run.ranks()));
}

std::vector<Sample> compute(const Run& run) {
  std::vector<Sample> samples;
  for (const auto& exchange : run.exchanges) {
    if (exchange.macs == 0) continue;
    samples.push_back(
        {exchange.index, static_cast<double>(exchange.samples), static_cast<double>(exchange.macs) * batch_of(run)});
  }
  return samples;
}

Figure compute_figure(const Task& task) {
  const auto series = series_of(task, compute, false);
  const Axis x{"training images seen"};
  const Axis y{"multiply-accumulates, forward, one rank", Unit::kNumber, ScaleKind::kLinear, true};
  return figure_of(
      "compute", "Compute per step", {Plot{x, y, series, {}}},
      "Convolutions and linear layers of the network that is being trained, times the batch of a rank. It falls when "
      "the network is cut.");
}

std::vector<const KeptUnits*> groups_that_lost(const Run& run) {
  std::vector<const KeptUnits*> groups;
  for (const KeptUnits& group : run.groups) {
    if (static_cast<int64_t>(group.kept.size()) != group.size) groups.push_back(&group);
  }
  return groups;
}

/// Of groups that lost something; if there are too many, of evenly chosen ones.
std::vector<Strip> strips_of(const Run& run) {
  const auto groups = groups_that_lost(run);
  std::vector<Strip> strips;
  for (const size_t i : thinned(groups.size(), kMostStrips)) {
    const auto& [name, size, kept] = *groups[i];
    Strip strip{name, std::vector<bool>(static_cast<size_t>(size))};
    for (const int64_t unit : kept) {
      if (unit >= 0 && unit < size) strip.bits[static_cast<size_t>(unit)] = true;
    }
    strips.push_back(std::move(strip));
  }
  return strips;
}

void add_rows(Table& table, const std::string& name, const Run& run) {
  for (const auto& group : run.groups) {
    table.rows.push_back({name, group.group, static_cast<double>(group.kept.size()), static_cast<double>(group.size)});
  }
}

Figure pattern_figure(const Task& task) {
  Figure figure{.id = "patterns", .title = "Learned sparsity patterns"};
  Table table{{{"run", {}}, {"group", {}}, {"kept", {}, 7}, {"units", {}, 7}}, {}};
  for (const auto& variant : task.variants) {
    const auto run = std::find_if(variant.runs.begin(), variant.runs.end(),
                                  [](const Run* r) { return !groups_that_lost(*r).empty(); });
    if (run == variant.runs.end() || figure.drawings.size() == kMostPictures) continue;
    const auto title = fmt::format("{}, seed {}", variant.name, (*run)->option("seed"));
    figure.drawings.push_back(draw_strips(title, strips_of(**run)));
    add_rows(table, variant.name, **run);
  }
  if (figure.drawings.empty()) {
    figure.missing = "no run has a structure.json with groups that lost units";
    return figure;
  }
  figure.tables = {std::move(table)};
  figure.text =
      "Units of the groups that lost some: filled ones survived, with all filters and channels that belong to them.";
  return figure;
}

}  // namespace

std::vector<Figure> network_figures(const Task& task) {
  return {compute_figure(task), pattern_figure(task)};
}

}  // namespace prunex::report
