// Lines, bands and marks over two axes; lying bars; bit strips; spans of time per rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/drawing.h"

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

struct Bar {
  std::string label;
  std::vector<double> parts;       ///< as many as Bars::parts, or fewer
  std::optional<Interval> spread;  ///< of the sum: a whisker
};

struct Bars {
  Axis value;
  std::vector<std::string> parts;  ///< names, for hints
  std::vector<Bar> bars;
  int first_style = 0;  ///< of the first part; the others follow
};
std::string draw(const Bars& bars);
/// The sum of its parts.
double total(const Bar& bar);

/// A row of `bits.size()` units: kept ones are filled.
struct Strip {
  std::string label;
  std::vector<bool> bits;
};
std::string draw_strips(const std::string& title, const std::vector<Strip>& strips);

/// Shares of rows, 0 … 1; those on the diagonal are what should be.
std::string draw_matrix(const std::string& title, const std::vector<std::string>& names,
                        const std::vector<std::vector<double>>& shares);

/// An image with two lines below it.
struct Picture {
  std::string png;  ///< in base64
  std::string first, second, hint;
};
std::string draw_pictures(const std::string& title, const std::vector<Picture>& pictures);

/// A value with its interval, in a row of its own.
struct Estimate {
  std::string label;
  int style = 0;
  double value = 0;
  Interval interval;
};
/// Marks with lying whiskers, and a line at 0.
std::string draw(const Axis& value, const std::vector<Estimate>& estimates);

/// A stretch of a row, in the style of number `style`.
struct Stretch {
  size_t row = 0;
  int style = 0;
  double begin = 0, length = 0;
  std::string hint;
};
std::string draw_rows(const Axis& time, const std::vector<std::string>& rows, const std::vector<Stretch>& stretches);

}  // namespace prunex::report
