#include "report/axis.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace prunex::report {
namespace {

/// What ticks are multiples of.
struct TickUnit {
  double from;  // used if the largest value is so large
  double size;
  const char* suffix;
};
constexpr std::array<TickUnit, 4> kTimes{{{0, 1e-3, " ms"}, {1, 1, " s"}, {600, 60, " min"}, {10800, 3600, " h"}}};
constexpr std::array<TickUnit, 4> kCounts{{{0, 1, ""}, {1e4, 1e3, " k"}, {5e6, 1e6, " M"}, {5e9, 1e9, " G"}}};

/// Ticks of times, and of numbers that are evenly spaced, are all in one unit.
TickUnit unit_of(const Axis& axis, const std::vector<double>& values) {
  const bool counts = axis.unit == Unit::kNumber && axis.scale == ScaleKind::kLinear;
  if (axis.unit != Unit::kSeconds && !counts) return {0, 1, ""};
  const double largest = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  const auto& units = counts ? kCounts : kTimes;
  TickUnit chosen = units[0];
  for (const auto& unit : units) {
    if (largest >= unit.from) chosen = unit;
  }
  return chosen;
}

Range range_of(const Axis& axis, const std::vector<double>& values, double size) {
  Range range(axis.scale);
  if (axis.from_zero && axis.scale == ScaleKind::kLinear) range.add(0);
  for (const double value : values) range.add(value / size);
  return range;
}

}  // namespace

AxisScale::AxisScale(const Axis& axis, const std::vector<double>& values, double from_pixel, double to_pixel)
    : axis_(axis),
      size_(unit_of(axis, values).size),
      suffix_(unit_of(axis, values).suffix),
      scale_(axis.scale, range_of(axis, values, size_), from_pixel, to_pixel) {}

bool AxisScale::shows(double value) const {
  return Range(axis_.scale).shows(value);
}

double AxisScale::position(double value) const {
  return scale_.position(std::clamp(value / size_, scale_.low(), scale_.high()));
}

std::vector<AxisScale::Tick> AxisScale::ticks() const {
  std::vector<Tick> ticks;
  for (const double mark : axis_.marks) ticks.push_back({position(mark), format(mark, axis_.unit)});
  if (!ticks.empty()) return ticks;
  for (const double tick : scale_.ticks()) {
    const bool one_unit = axis_.unit == Unit::kSeconds || !suffix_.empty();
    const std::string text = tick == 0 && axis_.unit != Unit::kShare ? "0" : plain(tick, 3) + suffix_;
    ticks.push_back({scale_.position(tick), one_unit ? text : format(tick, axis_.unit)});
  }
  return ticks;
}

}  // namespace prunex::report
