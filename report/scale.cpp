#include "report/scale.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace prunex::report {
namespace {

constexpr int kSteps = 5;
constexpr double kMost = 1e300;  // beyond it the width of a range might not be finite
constexpr double kMostLogTicks = 8;

double power_of_ten(double value) {
  return std::pow(10.0, std::floor(std::log10(value) + 1e-9));
}

/// The largest of 1, 2, 5 x 10^n that is not above the value; or the smallest not below.
double round_down(double value) {
  const double power = power_of_ten(value), lead = value / power * (1 + 1e-9);
  return (lead >= 5 ? 5 : lead >= 2 ? 2 : 1) * power;
}
double round_up(double value) {
  const double power = power_of_ten(value), lead = value / power * (1 - 1e-9);
  return (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10) * power;
}

std::vector<double> linear_ticks(double low, double high, double step) {
  std::vector<double> ticks;
  const auto count = std::lround((high - low) / step);
  for (long i = 0; i <= count; ++i) ticks.push_back(low + static_cast<double>(i) * step);
  for (double& tick : ticks) tick = std::abs(tick) < step * 1e-9 ? 0 : tick;
  return ticks;
}

/// All of 1, 2, 5 x 10^n if they are few; else every power of ten, or every second, third, ...
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double power = power_of_ten(low); power <= high * (1 + 1e-9); power *= 10) {
    for (const double lead : {1.0, 2.0, 5.0}) {
      if (lead * power >= low * (1 - 1e-9) && lead * power <= high * (1 + 1e-9)) ticks.push_back(lead * power);
    }
  }
  if (static_cast<double>(ticks.size()) <= kMostLogTicks) return ticks;
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first + 1) / kMostLogTicks));
  ticks.clear();
  for (double exponent = first; exponent <= last; exponent += step) ticks.push_back(std::pow(10.0, exponent));
  return ticks;
}

}  // namespace

bool Range::shows(double value) const {
  return std::abs(value) < kMost && (kind_ == ScaleKind::kLinear || value > 1 / kMost);
}

void Range::add(double value) {
  if (!shows(value)) return;
  const bool first = empty();
  low_ = first ? value : std::min(low_, value);
  high_ = first ? value : std::max(high_, value);
}

double nice_step(double width, int count) {
  return round_up(width / count);
}

Scale::Scale(ScaleKind kind, const Range& range, double from_pixel, double to_pixel)
    : kind_(kind), from_(from_pixel), to_(to_pixel) {
  const bool log = kind == ScaleKind::kLog;
  low_ = range.empty() ? (log ? 1 : 0) : range.low();
  high_ = range.empty() ? (log ? 10 : 1) : range.high();
  if (log) {
    low_ = round_down(low_);
    high_ = round_up(high_);
    if (low_ == high_) high_ = 10 * low_;
    ticks_ = log_ticks(low_, high_);
    return;
  }
  if (low_ == high_) (low_ > 0 ? low_ : high_) = low_ == 0 ? 1 : 0;
  const double step = nice_step(high_ - low_, kSteps);
  low_ = std::floor(low_ / step + 1e-9) * step;
  high_ = std::ceil(high_ / step - 1e-9) * step;
  ticks_ = linear_ticks(low_, high_, step);
}

double Scale::position(double value) const {
  const bool log = kind_ == ScaleKind::kLog;
  const double low = log ? std::log(low_) : low_, high = log ? std::log(high_) : high_;
  const double at = log ? std::log(value) : value;
  return from_ + (at - low) / (high - low) * (to_ - from_);
}

}  // namespace prunex::report
