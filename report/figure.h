// What the page is made of: a drawing, what it shows, and the numbers behind it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/bars.h"
#include "report/study.h"
#include "report/table.h"

namespace prunex::report {

struct LegendEntry {
  std::string name;
  int style = 0;
};

struct Figure {
  std::string id, title;
  std::string text;  ///< what is drawn and how to read it
  std::vector<std::string> drawings;
  std::vector<LegendEntry> legend;
  bool boxes = false;         ///< the legend's samples are filled boxes
  std::vector<Table> tables;  ///< one per drawing; without drawings they are shown themselves
  bool folded = false;        ///< tables are shown when asked for, though there is no drawing
  std::string missing;        ///< why there is nothing, or what is not in it

  bool is_empty() const { return drawings.empty() && tables.empty(); }
};

/// Plots below each other as a figure: one legend and a table per plot, of the series that have points. Where
/// there is a colour for everyone, or nobody has one, series in grey take those that are free.
Figure figure_of(const std::string& id, const std::string& title, std::vector<Plot> plots);
/// Bars as a figure.
Figure figure_of(const std::string& id, const std::string& title, const Bars& bars);
/// A figure that says what is missing.
Figure missing_figure(const std::string& id, const std::string& title, const std::string& missing);

/// One series per variant that has points; the variant's name and style.
std::vector<Series> series_of(const Task& task, const Curve& curve, bool marks);

}  // namespace prunex::report
