// Lines, bands and marks over two axes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/axis.h"

namespace prunex::report {

struct Interval {
  double low = 0, high = 0;
};

struct Point {
  double x = 0, y = 0;
  std::optional<Interval> spread;  ///< of y: a band along a line, a whisker at a mark
};

struct Series {
  std::string name;
  int style = 0;  ///< see Style
  std::vector<Point> points;
  bool line = true, marks = false;
};

/// A vertical line with a word at it.
struct Rule {
  double x = 0;
  std::string name;
};

struct Plot {
  Axis x, y;
  std::vector<Series> series;
  std::vector<Rule> rules;
};

/// Points that an axis cannot show, such as 0 on a log scale, are left out. Long lines are thinned.
std::string draw(const Plot& plot);

/// At most `most` of n positions, evenly spread, first and last included.
std::vector<size_t> thinned(size_t n, size_t most);

}  // namespace prunex::report
