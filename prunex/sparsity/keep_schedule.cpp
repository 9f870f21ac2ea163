#include "prunex/sparsity/keep_schedule.h"

#include <algorithm>
#include <cmath>

namespace prunex::sparsity {

double KeepSchedule::share(int64_t k, double keep) const {
  if (ramp == KeepRamp::kHard || k >= end) return keep;
  if (k < start) return 1.0;
  const double left = 1.0 - static_cast<double>(k - start + 1) / static_cast<double>(end - start + 1);
  return keep + (1.0 - keep) * left * left * left;
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
