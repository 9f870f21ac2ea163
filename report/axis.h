// A scale with words: what is drawn along an axis.
#pragma once

#include <string>
#include <vector>

#include "report/format.h"
#include "report/scale.h"

namespace prunex::report {

struct Axis {
  std::string label;
  Unit unit = Unit::kNumber;
  ScaleKind scale = ScaleKind::kLinear;
  bool from_zero = false;          ///< linear only: the axis begins at 0 even if the data do not
  std::vector<double> marks = {};  ///< ticks at these values instead of round ones
};

/// An axis over given values. All ticks of a time, or of evenly spaced numbers, are in one unit, chosen by the largest.
class AxisScale {
 public:
  AxisScale(const Axis& axis, const std::vector<double>& values, double from_pixel, double to_pixel);

  /// Whether a value has a place: finite, and positive on a log scale.
  bool shows(double value) const;
  /// In pixels; values beyond the ends are put there.
  double position(double value) const;
  double low() const { return scale_.low() * size_; }
  double high() const { return scale_.high() * size_; }

  struct Tick {
    double at = 0;  ///< pixels
    std::string text;
  };
  std::vector<Tick> ticks() const;

 private:
  Axis axis_;
  double size_;  // of the unit in which ticks are round
  std::string suffix_;
  Scale scale_;
};

}  // namespace prunex::report
