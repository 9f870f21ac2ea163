#include "report/figure.h"

#include <algorithm>

namespace prunex::report {
namespace {

constexpr size_t kMostRows = 60;  // of a series, in the table

Column column_of(const Axis& axis) {
  return {axis.label, axis.unit};
}

/// Those with points.
std::vector<Series> drawable(std::vector<Series> series) {
  std::erase_if(series, [](const Series& one) { return one.points.empty(); });
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

std::string text_of(const Column& column, const Cell& cell) {
  if (!cell.number) return cell.word.empty() ? "–" : cell.word;
  const double value = *cell.number;
  return column.unit ? format(value, *column.unit, column.digits) : plain(value, column.digits);
}

Figure figure_of(const std::string& id, const std::string& title, const Plot& plot) {
  Plot shown = plot;
  shown.series = drawable(plot.series);
  if (shown.series.empty()) return missing_figure(id, title, "no run holds the data for this figure");
  Figure figure{.id = id, .title = title, .drawings = {draw(shown)}, .table = table_of(shown)};
  for (const auto& series : shown.series) figure.legend.push_back({series.name, series.style});
  return figure;
}

Figure figure_of(const std::string& id, const std::string& title, const Bars& bars) {
  if (bars.bars.empty()) return missing_figure(id, title, "no run holds the data for this figure");
  Figure figure{.id = id, .title = title, .drawings = {draw(bars)}, .boxes = true, .table = table_of(bars)};
  for (size_t i = 0; i < bars.parts.size() && bars.parts.size() > 1; ++i) {
    figure.legend.push_back({bars.parts[i], bars.first_style + static_cast<int>(i)});
  }
  return figure;
}

void add_below(Figure& figure, const Plot& plot) {
  Figure below = figure_of(figure.id, figure.title, plot);
  figure.drawings.insert(figure.drawings.end(), below.drawings.begin(), below.drawings.end());
  if (figure.legend.empty()) figure.legend = below.legend;
  if (figure.table.rows.empty()) {
    figure.table = std::move(below.table);
  } else if (!below.table.rows.empty()) {
    figure.more_tables.push_back(std::move(below.table));
  }
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
