#include <algorithm>

#include "report/drawing.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

constexpr size_t kMostTensors = 6;

Axis norm(const char* label) {
  return {label, Unit::kNumber, ScaleKind::kLog};
}

Curve residual(double Residuals::*which) {
  return [which](const Run& run) {
    std::vector<Sample> samples;
    for (const auto& exchange : run.exchanges) {
      samples.push_back({exchange.index, static_cast<double>(exchange.samples), exchange.residuals.*which});
    }
    return samples;
  };
}

bool is_zero(const Series& series) {
  return std::all_of(series.points.begin(), series.points.end(), [](const Point& point) { return point.y == 0; });
}

Figure total_figure(const Task& task) {
  const std::vector<std::pair<const char*, double Residuals::*>> kinds{
      {"primal, in the nodes: r intra", &Residuals::r_intra},
      {"primal, between nodes: r inter", &Residuals::r_inter},
      {"dual, in the nodes: s intra", &Residuals::s_intra},
      {"dual, between nodes: s inter", &Residuals::s_inter}};
  std::vector<Plot> plots;
  for (const auto& [label, which] : kinds) {
    auto series = series_of(task, residual(which), false);
    std::erase_if(series, is_zero);
    plots.push_back(Plot{kSamples, norm(label), series, {}});
  }
  Figure figure = figure_of("residuals", "Residuals", std::move(plots));
  figure.text =
      "Norms over all tensors that ADMM holds; none are computed without duals, as after the freeze or with --kappa 0.";
  if (figure.drawings.empty()) figure.missing = "no run has residuals: they belong to ADMM (--kappa above 0)";
  return figure;
}

/// The first run with the data that `has` looks for.
const Run* first_with(const Task& task, const std::function<bool(const Exchange&)>& has) {
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) {
      if (std::any_of(run->exchanges.begin(), run->exchanges.end(), has)) return run;
    }
  }
  return nullptr;
}

/// The tensors with the largest primal residuals in the first exchange that has them.
std::vector<std::string> largest(const Run& run) {
  std::vector<std::pair<double, std::string>> sizes;
  for (const auto& exchange : run.exchanges) {
    for (const auto& [name, of] : exchange.residuals_by_tensor) sizes.push_back({-of.r_intra - of.r_inter, name});
    if (!sizes.empty()) break;
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kMostTensors, sizes.size()); ++i) names.push_back(sizes[i].second);
  return names;
}

Plot tensor_plot(const Run& run, double Residuals::*which, const char* label) {
  Plot plot{kSamples, norm(label), {}, {}};
  int style = 0;
  for (const auto& name : largest(run)) {
    Series series{name, style++, {}, true, false};
    for (const auto& exchange : run.exchanges) {
      const auto found = exchange.residuals_by_tensor.find(name);
      if (found == exchange.residuals_by_tensor.end()) continue;
      series.points.push_back({static_cast<double>(exchange.samples), found->second.*which, std::nullopt});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot rank_plot(const Run& run, double Residuals::*which, const char* label) {
  Plot plot{kSamples, norm(label), {}, {}};
  for (const auto& exchange : run.exchanges) {
    for (size_t rank = 0; rank < exchange.residuals_by_rank.size(); ++rank) {
      if (plot.series.size() <= rank) {
        const int style = rank < Style::kHighlights ? static_cast<int>(rank) : Style::kOther;
        plot.series.push_back({"rank " + std::to_string(rank), style, {}, true, false});
      }
      plot.series[rank].points.push_back(
          {static_cast<double>(exchange.samples), exchange.residuals_by_rank[rank].*which, std::nullopt});
    }
  }
  return plot;
}

using Draw = Plot (*)(const Run&, double Residuals::*, const char*);

/// In the nodes above, between nodes below.
Figure of_one_run(const Run& run, const char* id, const char* title, Draw plot) {
  return figure_of(id, title,
                   {plot(run, &Residuals::r_intra, "in the nodes: r intra"),
                    plot(run, &Residuals::r_inter, "between nodes: r inter")},
                   "Primal residuals of " + run.directory + ", one seed.");
}

Figure tensor_figure(const Task& task) {
  const char* title = "Residuals by tensor";
  const Run* run = first_with(task, [](const Exchange& exchange) { return !exchange.residuals_by_tensor.empty(); });
  if (run == nullptr) {
    return missing_figure("residuals-tensor", title, "no run wrote residuals.by_tensor to its metrics.jsonl");
  }
  return of_one_run(*run, "residuals-tensor", title, tensor_plot);
}

Figure rank_figure(const Task& task) {
  const char* title = "Residuals by rank";
  const Run* run = first_with(task, [](const Exchange& exchange) { return !exchange.residuals_by_rank.empty(); });
  if (run == nullptr) {
    return missing_figure("residuals-rank", title, "no run wrote residuals.by_rank to its metrics.jsonl");
  }
  return of_one_run(*run, "residuals-rank", title, rank_plot);
}

}  // namespace

std::vector<Figure> residual_figures(const Task& task) {
  return {total_figure(task), tensor_figure(task), rank_figure(task)};
}

}  // namespace prunex::report
