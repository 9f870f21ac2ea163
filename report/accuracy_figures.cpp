#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "report/drawing.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

/// Accuracy or loss at every exchange that has it, along what `step` adds up.
Curve along(std::optional<double> (*what)(const Exchange&), double (*step)(const Exchange&)) {
  return [what, step](const Run& run) {
    std::vector<Sample> samples;
    double x = 0;
    for (const auto& exchange : run.exchanges) {
      x += step(exchange);
      if (const auto y = what(exchange)) samples.push_back({exchange.index, x, *y});
    }
    return samples;
  };
}

std::optional<double> accuracy(const Exchange& exchange) {
  return exchange.accuracy;
}
std::optional<double> loss(const Exchange& exchange) {
  return exchange.loss;
}
double seconds(const Exchange& exchange) {
  return training_seconds(exchange.seconds);
}
double bytes(const Exchange& exchange) {
  return static_cast<double>(exchange.inter_node_bytes);
}

bool marked(const Task& task) {
  const auto evaluated = [](const Variant& variant) {
    const auto& exchanges = variant.first().exchanges;
    return std::count_if(exchanges.begin(), exchanges.end(), [](const Exchange& e) { return !!e.accuracy; });
  };
  return std::all_of(task.variants.begin(), task.variants.end(), [&](const Variant& v) { return evaluated(v) <= 30; });
}

Figure against(const Task& task, const char* id, const Axis& x, double (*step)(const Exchange&)) {
  const auto series = series_of(task, along(accuracy, step), marked(task));
  const Axis y{"test accuracy", Unit::kShare};
  return figure_of(
      id, "Accuracy against " + x.label.substr(0, x.label.find(',')), {Plot{x, y, series, {}}},
      "Accuracy of the consensus model z where it was evaluated. Line: mean over seeds; band: lowest to highest seed.");
}

Figure loss_figure(const Task& task) {
  const auto series = series_of(task, along(loss, seconds), false);
  const Axis x{"training time", Unit::kSeconds}, y{"training loss"};
  return figure_of("loss", "Training loss against time", {Plot{x, y, series, {}}},
                   "Mean over the local steps since the exchange before, all ranks; evaluation is not in the time.");
}

/// One mark per variant at the means over seeds.
Plot marks_of(const Task& task, const Axis& x, const Quantity& x_of) {
  Plot plot{x, {"test accuracy", Unit::kShare}, {}, {}};
  for (const auto& variant : task.variants) {
    const Spread at = over_seeds(variant, x_of), y = over_seeds(variant, accuracy_of);
    if (at.count == 0 || y.count == 0) continue;
    plot.series.push_back({variant.name, variant.style, {{at.mean, y.mean, whisker(y)}}, false, true});
  }
  return plot;
}

/// Joins the marks of variants that agree on everything but what is kept.
void join_families(const Task& task, Plot& plot) {
  std::map<std::map<std::string, std::string>, Series> families;
  for (const auto& series : plot.series) {
    const auto variant = std::find_if(task.variants.begin(), task.variants.end(),
                                      [&](const Variant& one) { return one.name == series.name; });
    auto options = identity(variant->first());
    for (const char* changed : {"keep", "groups", "lr"}) options.erase(changed);
    auto& family = families.try_emplace(options, Series{series.name, series.style, {}, true, false}).first->second;
    family.points.push_back({series.points[0].x, series.points[0].y, std::nullopt});
  }
  for (auto& [options, family] : families) {
    std::sort(family.points.begin(), family.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    if (family.points.size() > 1) plot.series.push_back(family);
  }
}

/// The stairs of what can be had for at most x.
Series stairs(const std::vector<Point>& points) {
  Series front{"Pareto front", Style::kNeutral, {}, true, false};
  for (const size_t i : pareto_front(points)) {
    if (!front.points.empty()) front.points.push_back({points[i].x, front.points.back().y, std::nullopt});
    front.points.push_back({points[i].x, points[i].y, std::nullopt});
  }
  return front;
}

/// Of a plot with more than what the tables hold.
void draw_instead(Figure& figure, const Plot& plot) {
  Figure drawn = figure_of(figure.id, figure.title, {plot});
  figure.drawings = std::move(drawn.drawings);
  figure.legend = std::move(drawn.legend);
}

Figure pareto_figure(const Task& task) {
  Task first_stages = task;  // the others' bytes are their first stages', too
  std::erase_if(first_stages.variants, [](const Variant& variant) { return variant.is_later_stage(); });
  Plot plot =
      marks_of(first_stages, {"bytes between nodes per image", Unit::kBytes, ScaleKind::kLog}, bytes_per_sample);
  std::vector<Point> points;
  for (const auto& series : plot.series) points.push_back(series.points[0]);
  Figure figure = figure_of("pareto", "Accuracy against bytes per image", {plot});
  if (figure.is_empty()) return figure;
  auto& table = figure.tables[0];
  for (auto& row : table.rows) row.push_back("no");
  table.columns.push_back({"on the front", {}});
  for (const size_t i : pareto_front(points)) table.rows[i].back() = "yes";
  plot.series.push_back(stairs(points));
  draw_instead(figure, plot);
  if (first_stages.variants.size() < task.variants.size())
    figure.missing = "runs that began with another run's network";
  figure.text =
      "What one node sent to others, per training image of the whole cluster. Mark: mean over seeds; whisker: lowest "
      "to highest seed. Nothing lies above and left of the stairs.";
  return figure;
}

/// Of all groups together; while it is not known which units survived, what masks keep.
std::optional<double> share_kept(const Run& run) {
  double units = 0, kept = 0;
  for (const auto& group : run.groups) {
    units += static_cast<double>(group.size);
    kept += static_cast<double>(group.kept.size());
  }
  if (units > 0) return kept / units;
  return run.exchanges.empty() ? std::nullopt : std::optional(run.exchanges.back().keep);
}

Figure kept_figure(const Task& task) {
  Plot plot = marks_of(task, {"share of units kept", Unit::kShare}, share_kept);
  Figure figure = figure_of("kept", "Accuracy against kept share", {plot});
  if (figure.is_empty()) return figure;
  join_families(task, plot);
  draw_instead(figure, plot);
  figure.text = "Units of the groups alive at the end. A line joins runs that differ only in what they keep.";
  return figure;
}

/// "0: 500, 3: 20": images by class.
std::string classes_of(const NodeData& node) {
  constexpr int kNamed = 10;
  std::string text;
  int named = 0, more = 0;
  for (size_t label = 0; label < node.class_counts.size(); ++label) {
    if (node.class_counts[label] == 0) continue;
    if (++named > kNamed) {
      ++more;
    } else {
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", label, node.class_counts[label]);
    }
  }
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

/// Of the first finished run of every variant whose nodes had images of their own.
Figure nodes_figure(const Task& task) {
  Table table{{{"run", {}},
               {.name = "node", .right = true},
               {.name = "accuracy", .unit = Unit::kShare},
               {.name = "images", .digits = 9},
               {"by class", {}}},
              {}};
  for (const auto& variant : task.variants) {
    const auto finished = variant.finished();
    if (finished.empty()) continue;
    const auto& nodes = finished.front()->summary->nodes;
    for (size_t node = 0; node < nodes.size(); ++node) {
      const auto& counts = nodes[node].class_counts;
      const auto images = std::accumulate(counts.begin(), counts.end(), 0.0);
      table.rows.push_back({variant.name, std::to_string(node), nodes[node].accuracy, images, classes_of(nodes[node])});
    }
  }
  Figure figure{.id = "nodes", .title = "Nodes with images of their own"};
  if (table.rows.empty()) return figure;
  figure.tables = {std::move(table)};
  figure.text =
      "Of the first finished seed: training images by class, and the accuracy of the product on the test images, each "
      "class weighted as on the node.";
  return figure;
}

}  // namespace

std::optional<double> bytes_per_sample(const Run& run) {
  if (!run.summary || run.summary->samples <= 0 || run.summary->inter_node_bytes <= 0) return std::nullopt;
  return static_cast<double>(run.summary->inter_node_bytes) / static_cast<double>(run.summary->samples);
}

std::optional<double> accuracy_of(const Run& run) {
  return run.summary ? std::optional(run.summary->accuracy) : std::nullopt;
}

double training_seconds(const Seconds& seconds) {
  return seconds.local + seconds.exchange();
}

std::vector<size_t> pareto_front(const std::vector<Point>& points) {
  std::vector<size_t> order(points.size()), front;
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return points[a].x != points[b].x ? points[a].x < points[b].x : points[a].y > points[b].y;
  });
  for (const size_t i : order) {
    if (front.empty() || points[i].y > points[front.back()].y) front.push_back(i);
  }
  return front;
}

std::vector<Figure> accuracy_figures(const Task& task) {
  std::vector<Figure> figures{
      against(task, "accuracy-time", {"training time", Unit::kSeconds}, seconds),
      against(task, "accuracy-bytes", {"bytes between nodes, sent by node 0", Unit::kBytes, ScaleKind::kLog}, bytes),
      pareto_figure(task), kept_figure(task), loss_figure(task)};
  if (Figure nodes = nodes_figure(task); !nodes.is_empty()) figures.push_back(std::move(nodes));
  return figures;
}

}  // namespace prunex::report
