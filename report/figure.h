// What the page is made of: a drawing, what it shows, and the numbers behind it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/bars.h"
#include "report/format.h"
#include "report/study.h"

namespace prunex::report {

struct Column {
  std::string name;
  std::optional<Unit> unit;  ///< of numbers; absent: plain, to `digits`
  int digits = 4;
};

/// Nothing, a number or a word.
struct Cell {
  Cell() = default;
  Cell(double value) : number(value) {}                 // NOLINT: tables are written as lists
  Cell(std::string value) : word(std::move(value)) {}   // NOLINT
  Cell(const char* value) : word(value) {}              // NOLINT
  Cell(std::optional<double> value) : number(value) {}  // NOLINT

  std::optional<double> number;
  std::string word;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};
std::string text_of(const Column& column, const Cell& cell);

struct LegendEntry {
  std::string name;
  int style = 0;
};

struct Figure {
  std::string id, title;
  std::string text;  ///< what is drawn and how to read it
  std::vector<std::string> drawings;
  std::vector<LegendEntry> legend;
  bool boxes = false;  ///< the legend's samples are filled boxes
  Table table;
  std::vector<Table> more_tables;  ///< of further drawings
  std::string missing;             ///< why there is no drawing, or what is not in it
};

/// A plot as a figure: legend and table from its series.
Figure figure_of(const std::string& id, const std::string& title, const Plot& plot);
/// Bars as a figure.
Figure figure_of(const std::string& id, const std::string& title, const Bars& bars);
/// One more drawing with its table; without points nothing.
void add_below(Figure& figure, const Plot& plot);
/// A figure that says what is missing.
Figure missing_figure(const std::string& id, const std::string& title, const std::string& missing);

/// One series per variant that has points; the variant's name and style.
std::vector<Series> series_of(const Task& task, const Curve& curve, bool marks);

}  // namespace prunex::report
