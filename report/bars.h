// Lying bars, each a stack of parts; bit strips; spans of time per rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/plot.h"

namespace prunex::report {

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

/// A stretch of a row, in the style of number `style`.
struct Stretch {
  size_t row = 0;
  int style = 0;
  double begin = 0, length = 0;
  std::string hint;
};
std::string draw_rows(const Axis& time, const std::vector<std::string>& rows, const std::vector<Stretch>& stretches);

}  // namespace prunex::report
