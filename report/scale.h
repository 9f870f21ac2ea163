// From values to places on paper.
#pragma once

#include <vector>

namespace prunex::report {

enum class ScaleKind { kLinear, kLog };

/// A range of values; empty until something positive (log) or finite (linear) is added.
class Range {
 public:
  explicit Range(ScaleKind kind = ScaleKind::kLinear) : kind_(kind) {}
  /// Values that cannot be shown, at or near infinity, or not positive on a log scale, are left out.
  void add(double value);
  bool shows(double value) const;
  bool empty() const { return low_ > high_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  ScaleKind kind_;
  double low_ = 1, high_ = 0;
};

/// Maps values onto pixels and knows where the ticks are.
class Scale {
 public:
  /// Widens the range to whole ticks (linear), or to steps of 1, 2, 5 (log). An empty range becomes 0..1 or 1..10.
  Scale(ScaleKind kind, const Range& range, double from_pixel, double to_pixel);

  double position(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  ScaleKind kind_;
  double low_ = 0, high_ = 1, from_, to_;
  std::vector<double> ticks_;
};

/// 1, 2 or 5 times a power of ten: about `count` steps over the width.
double nice_step(double width, int count);

}  // namespace prunex::report
