#include "prunex/sparsity/projection.h"

#include <algorithm>
#include <cmath>

namespace prunex::sparsity {

namespace {

/// 1 before the ramp, 0 from its end on.
double cube_left(const KeepSchedule& schedule, int64_t k) {
  if (schedule.ramp == KeepRamp::kHard || k >= schedule.end) return 0;
  if (k < schedule.start) return 1;
  const auto length = static_cast<double>(schedule.end - schedule.start + 1);
  const double left = 1.0 - static_cast<double>(k - schedule.start + 1) / length;
  return left * left * left;
}

}  // namespace

double KeepSchedule::progress(int64_t k) const {
  return 1.0 - cube_left(*this, k);
}

double KeepSchedule::share(int64_t k, double keep) const {
  const double left = cube_left(*this, k);
  return left >= 1 ? 1.0 : keep + (1.0 - keep) * left;
}

int64_t units_kept(int64_t size, double share) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(size) * share + 0.5)));
}

int64_t hardware_multiple(int64_t size) {
  return size >= 64 ? 16 : size >= 16 ? 8 : 1;
}

double rounded_share(int64_t size, double share, int64_t multiple) {
  const double blocks = std::floor(static_cast<double>(size) * share / static_cast<double>(multiple) + 0.5);
  const int64_t units = std::min(size, multiple * std::max<int64_t>(1, static_cast<int64_t>(blocks)));
  return static_cast<double>(units) / static_cast<double>(size);
}

}  // namespace prunex::sparsity
