#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "report/drawing.h"

namespace prunex::report {
namespace {

constexpr size_t kMostRows = 60;  // of a series, in the table
constexpr const char* kNoData = "no run holds the data for this figure";

Column column_of(const Axis& axis) {
  return {axis.label, axis.unit};
}

/// Those with a point that the axes can show.
std::vector<Series> drawable(const Plot& plot) {
  const Range x(plot.x.scale), y(plot.y.scale);
  std::vector<Series> series = plot.series;
  std::erase_if(series, [&](const Series& one) {
    return std::none_of(one.points.begin(), one.points.end(),
                        [&](const Point& point) { return x.shows(point.x) && y.shows(point.y); });
  });
  return series;
}

Table table_of(const Plot& plot) {
  Table table{{{"run", {}}, column_of(plot.x), column_of(plot.y), {"lowest", plot.y.unit}, {"highest", plot.y.unit}},
              {}};
  for (const auto& series : plot.series) {
    for (const size_t i : thinned(series.points.size(), kMostRows)) {
      const auto& point = series.points[i];
      const Cell low = point.spread ? Cell(point.spread->low) : Cell();
      const Cell high = point.spread ? Cell(point.spread->high) : Cell();
      table.rows.push_back({series.name, point.x, point.y, low, high});
    }
  }
  return table;
}

/// Styles by name of all series that have points, in their order.
std::vector<LegendEntry> named_styles(const std::vector<Plot>& plots) {
  std::vector<LegendEntry> entries;
  for (const auto& plot : plots) {
    for (const auto& series : plot.series) {
      const bool known =
          std::any_of(entries.begin(), entries.end(), [&](const LegendEntry& e) { return e.name == series.name; });
      if (!known) entries.push_back({series.name, series.style});
    }
  }
  return entries;
}

void take_free_colours(std::vector<Plot>& plots) {
  std::map<std::string, int> taken;
  std::set<int> free;
  for (int style = 0; style < Style::kHighlights; ++style) free.insert(style);
  const auto entries = named_styles(plots);
  for (const auto& entry : entries) free.erase(entry.style);
  const bool none = free.size() == Style::kHighlights;
  if (entries.size() > Style::kHighlights && !none) return;
  for (const auto& entry : entries) {
    if (entry.style != Style::kOther || free.empty()) continue;
    taken[entry.name] = free.extract(free.begin()).value();
  }
  for (auto& plot : plots) {
    for (auto& series : plot.series) {
      if (const auto found = taken.find(series.name); found != taken.end()) series.style = found->second;
    }
  }
}

/// The grey ones have one entry together.
std::vector<LegendEntry> legend_of(const std::vector<Plot>& plots) {
  auto entries = named_styles(plots);
  const size_t all = entries.size();
  std::erase_if(entries, [](const LegendEntry& entry) { return entry.style == Style::kOther; });
  if (const size_t others = all - entries.size()) {
    entries.push_back({fmt::format("{}, named in the table", count_of(others, "other")), Style::kOther});
  }
  return entries;
}

Table table_of(const Bars& bars) {
  Table table{{{"run", {}}}, {}};
  for (const auto& part : bars.parts) table.columns.push_back({part, bars.value.unit});
  const size_t stacked = bars.parts.size() > 1 ? 1 : 0;
  if (stacked) table.columns.push_back({"together", bars.value.unit});
  for (const char* bound : {"lowest", "highest"}) table.columns.push_back({bound, bars.value.unit});
  for (const auto& bar : bars.bars) {
    std::vector<Cell> row{bar.label};
    row.insert(row.end(), bar.parts.begin(), bar.parts.end());
    row.resize(1 + bars.parts.size());
    if (stacked) row.push_back(total(bar));
    row.push_back(bar.spread ? Cell(bar.spread->low) : Cell());
    row.push_back(bar.spread ? Cell(bar.spread->high) : Cell());
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Figure figure_of(const std::string& id, const std::string& title, std::vector<Plot> plots, const std::string& text) {
  for (auto& plot : plots) plot.series = drawable(plot);
  std::erase_if(plots, [](const Plot& plot) { return plot.series.empty(); });
  if (plots.empty()) return {.id = id, .title = title, .text = text, .missing = kNoData};
  take_free_colours(plots);
  Figure figure{.id = id, .title = title, .text = text, .legend = legend_of(plots)};
  for (const auto& plot : plots) {
    figure.drawings.push_back(draw(plot));
    figure.tables.push_back(table_of(plot));
  }
  return figure;
}

Figure figure_of(const std::string& id, const std::string& title, const Bars& bars, const std::string& text) {
  if (bars.bars.empty()) return {.id = id, .title = title, .text = text, .missing = kNoData};
  Figure figure{
      .id = id, .title = title, .text = text, .drawings = {draw(bars)}, .boxes = true, .tables = {table_of(bars)}};
  for (size_t i = 0; i < bars.parts.size() && bars.parts.size() > 1; ++i) {
    figure.legend.push_back({bars.parts[i], bars.first_style + static_cast<int>(i)});
  }
  return figure;
}

Figure missing_figure(const std::string& id, const std::string& title, const std::string& missing) {
  return {.id = id, .title = title, .missing = missing};
}

std::vector<Series> series_of(const Task& task, const Curve& curve, bool marks) {
  std::vector<Series> series;
  for (const auto& variant : task.variants) {
    series.push_back({variant.name, variant.style, over_seeds(variant, curve), true, marks});
  }
  return series;
}

}  // namespace prunex::report
