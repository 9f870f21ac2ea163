#include "report/axis.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace prunex::report {
namespace {

struct TimeUnit {
  double from;  // used if the largest value is so many seconds
  double size;
  const char* suffix;
};
constexpr std::array<TimeUnit, 4> kTimeUnits{{{0, 1e-3, " ms"}, {1, 1, " s"}, {600, 60, " min"}, {10800, 3600, " h"}}};

TimeUnit time_unit(const std::vector<double>& values) {
  const double largest = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  TimeUnit chosen = kTimeUnits[0];
  for (const auto& unit : kTimeUnits) {
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

double size_of(const Axis& axis, const std::vector<double>& values) {
  return axis.unit == Unit::kSeconds ? time_unit(values).size : 1;
}

}  // namespace

AxisScale::AxisScale(const Axis& axis, const std::vector<double>& values, double from_pixel, double to_pixel)
    : axis_(axis),
      size_(size_of(axis, values)),
      suffix_(axis.unit == Unit::kSeconds ? time_unit(values).suffix : ""),
      scale_(axis.scale, range_of(axis, values, size_), from_pixel, to_pixel) {}

bool AxisScale::shows(double value) const {
  return std::isfinite(value) && (axis_.scale == ScaleKind::kLinear || value > 0);
}

double AxisScale::position(double value) const {
  return scale_.position(std::clamp(value / size_, scale_.low(), scale_.high()));
}

std::vector<AxisScale::Tick> AxisScale::ticks() const {
  std::vector<Tick> ticks;
  for (const double tick : scale_.ticks()) {
    const bool time = axis_.unit == Unit::kSeconds;
    ticks.push_back(
        {scale_.position(tick), time ? (tick == 0 ? "0" : plain(tick, 3) + suffix_) : format(tick, axis_.unit)});
  }
  return ticks;
}

}  // namespace prunex::report
