// Of gaps that must be small.
#pragma once

#include <algorithm>
#include <cmath>

namespace prunex::tests {

/// NaN if either is, over which std::max passes.
inline double larger(double a, double b) {
  return std::isnan(b) ? b : std::max(a, b);
}

}  // namespace prunex::tests
