// PowerSGD (arXiv 1905.13727): gradients as products of two thin matrices.
#pragma once

#include <cstdint>
#include <memory>

#include "prunex/strategies/gradients/gradient_strategy.h"

namespace prunex::strategies {

struct PowerSgdOptions {
  Reporting reporting;
  int64_t rank = 2;            ///< columns of the factors
  int64_t start_after = 0;     ///< steps with whole gradients before
  double least_shrinkage = 2;  ///< tensors that would not shrink by this factor go whole
  uint64_t seed = 0;           ///< of the first factors, the same on all ranks
};

/// Throws std::invalid_argument for a rank below 1.
void check(const PowerSgdOptions& options);

/// One power iteration per step and tensor, from the last step's factor (warm start), with error feedback: algorithms 1
/// and 2. Filter banks are matrices of out x rest; tensors that would hardly shrink
/// and vectors go whole. Two all-reduces per step.
std::unique_ptr<Strategy> make_powersgd(Replica& replica, comm::Hierarchy& ranks, const PowerSgdOptions& options);

}  // namespace prunex::strategies
