#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

#include "plan/plan.h"
#include "plan/tables.h"
#include "report/verdict.h"

namespace prunex::plan {
namespace {

using report::Figure;
using report::ScaleKind;
using report::Unit;

/// A colour for each of the first recorded rows and the first ddp; by what was recorded.
std::map<size_t, int> styles_of(const Plan& plan) {
  std::map<size_t, int> styles;
  int next = 0;
  bool has_ddp = false;
  for (const auto& row : plan.rows) {
    if (!row.is_recorded) continue;
    const bool is_ddp = !has_ddp && plan.of(row).strategy == "ddp";
    has_ddp = has_ddp || is_ddp;
    const bool is_coloured = next < report::Style::kHighlights - (has_ddp ? 0 : 1) || is_ddp;
    styles[row.recorded] = is_coloured ? next++ : report::Style::kOther;
  }
  return styles;
}

/// What tells it from others comes first: the end of a long label is cut off.
std::string name_of(const Plan& plan, const Row& row) {
  const Recorded& run = plan.of(row);
  if (row.is_recorded) return run.name;
  return fmt::format("H {} {}: {}", row.setting.local_steps, row.setting.payload, run.name);
}

Figure parts_figure(const Plan& plan) {
  report::Bars bars{.value = {"seconds of the whole run", Unit::kSeconds},
                    .parts = {"local steps", "waiting for the slowest node", "exchanges in the nodes", "network"}};
  for (const auto& row : plan.rows) {
    const double straggling = row.whole.compute * (plan.options.cluster.straggler - 1);
    const double work = std::max(0.0, row.whole.seconds - row.whole.compute - straggling - row.whole.wire);
    bars.bars.push_back({.label = name_of(plan, row),
                         .parts = {row.whole.compute, straggling, work, row.whole.wire},
                         .spread = row.range});
  }
  return report::figure_of(
      "parts", "Where the time goes", bars,
      "Mean over the recorded seeds; whisker: lowest to highest seed, widened by the scatter of timings.");
}

double seconds_on(const Plan& plan, const Row& row, const Cluster& cluster, const Network& network) {
  const Recorded& run = plan.of(row);
  double seconds = 0;
  for (const auto& seed : run.seeds) {
    seconds += predict(run, seed, row.setting, cluster, network, row.reaching->images).seconds;
  }
  return seconds / static_cast<double>(run.seeds.size());
}

Figure links_figure(const Plan& plan) {
  const std::string title = "Seconds to the accuracy at other links";
  report::Plot plot{{"link of a node, each way", Unit::kMbit, ScaleKind::kLog},
                    {"seconds to " + report::percent(plan.target), Unit::kSeconds, ScaleKind::kLog},
                    {},
                    {}};
  auto styles = styles_of(plan);
  for (const auto& row : plan.rows) {
    if (row.reaching) plot.series.push_back({plan.of(row).name, styles[row.recorded], {}, true, true});
  }
  for (const double mbit : report::usual_bandwidths()) {
    Cluster cluster = plan.options.cluster;
    cluster.link = {mbit};
    const auto network = make_network(cluster);
    size_t next = 0;
    for (const auto& row : plan.rows) {
      if (!row.reaching) continue;
      plot.series[next++].points.push_back({mbit, seconds_on(plan, row, cluster, *network), std::nullopt});
    }
  }
  if (plot.series.empty()) return report::missing_figure("links", title, "wanted a run that reaches the accuracy");
  return report::figure_of("links", title, {plot}, "Everything else as described; all nodes have the link.");
}

Figure scaling_figure(const Plan& plan, const Scaling& scaling, const std::string& id, const std::string& title) {
  report::Plot plot{{"ranks", Unit::kNumber, ScaleKind::kLog},
                    {"images per second and rank, of the fewest ranks'", Unit::kShare},
                    {},
                    {}};
  plot.y.from_zero = true;
  for (const auto& point : scaling.points) {
    plot.x.marks.push_back(static_cast<double>(point.nodes) * plan.options.cluster.ranks_per_node);
  }
  auto styles = styles_of(plan);
  for (size_t i = 0; i < scaling.rows.size(); ++i) {
    const Row& row = plan.rows[scaling.rows[i]];
    report::Series series{plan.of(row).name, styles[row.recorded], {}, true, true};
    const auto& first = scaling.points.front();
    for (const auto& point : scaling.points) {
      if (!first.images_per_second[i] || !point.images_per_second[i]) continue;
      const double efficiency = *point.images_per_second[i] / *first.images_per_second[i] * first.nodes / point.nodes;
      series.points.push_back(
          {static_cast<double>(point.nodes) * plan.options.cluster.ranks_per_node, efficiency, std::nullopt});
    }
    plot.series.push_back(std::move(series));
  }
  if (scaling.points.size() < 2) return report::missing_figure(id, title, "wanted several nodes");
  return report::figure_of(id, title, {plot});
}

report::Section section_of(const Plan& plan) {
  report::Section section{
      .title = plan.task,
      .verdict = plan.advice,
      .setup = plan.task + ", on " + describe(plan.options.cluster) + "; predicted",
      .summary = row_table(plan),
      .note =
          "H: steps between exchanges. Range: lowest to highest recorded seed, widened by the scatter of "
          "timings. Network: share of the time that waits for it. Efficiency: share of the time in which "
          "ranks compute. Not run: no run says what accuracy that gives."};
  section.chapters = {{"Time", {parts_figure(plan), links_figure(plan)}},
                      {"Scaling",
                       {scaling_figure(plan, plan.weak, "weak", "Weak scaling: every rank keeps its batch"),
                        scaling_figure(plan, plan.strong, "strong", "Strong scaling: a step keeps its images")}}};
  return section;
}

}  // namespace

std::string to_html(const Plan& plan, const report::Origin& origin) {
  report::Page page{.title = "Plan: " + plan.task, .sections = {section_of(plan)}};
  const auto left_out = plan.caveats.end() - static_cast<std::ptrdiff_t>(plan.left_out.size());  // they come last
  page.footer.assumed = {plan.caveats.begin(), left_out};
  page.footer.missing = report::take_missing(page.sections.front().chapters);
  page.footer.missing.insert(page.footer.missing.begin(), left_out, plan.caveats.end());
  page.footer.command = origin.command;
  page.footer.made = fmt::format("Made {} by prunex {}.", origin.date, origin.version);
  return report::to_html(page);
}

}  // namespace prunex::plan
