// How many units of a group are alive at an exchange.
#pragma once

#include <cstdint>

namespace prunex::sparsity {

enum class KeepRamp {
  kCubic,  ///< from 1 at `start` to the final share at `end`, fast first (arXiv 1710.01878)
  kHard,   ///< the final share from the first exchange on
};

/// The share of units kept at exchange k = 1, 2, …; docs/algorithm.md, section 3.
struct KeepSchedule {
  KeepRamp ramp = KeepRamp::kCubic;
  int64_t start = 2;  ///< k0: the first exchange that prunes
  int64_t end = 2;    ///< k1: the first exchange at the final share

  /// How far exchange k is on the way from everything, 0, to the final share, 1.
  double progress(int64_t k) const;
  /// In [keep, 1] for a final share `keep`.
  double share(int64_t k, double keep) const;
};

/// max(1, floor(size * share + 0.5)).
int64_t units_kept(int64_t size, double share);

/// The multiple that processors like in a group of `size` units: 16 from 64 units on, 8 from 16 on, else 1. Kernels
/// work in blocks of channels; one channel over a multiple can cost a whole block.
int64_t hardware_multiple(int64_t size);

/// The nearest multiple of `multiple` to size * share, ties up, at least one multiple and at most `size`, as a share of
/// `size`.
double rounded_share(int64_t size, double share, int64_t multiple);

}  // namespace prunex::sparsity
