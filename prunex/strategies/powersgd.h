// PowerSGD (arXiv 1905.13727): gradients as products of two thin matrices.
#pragma once

#include <cstdint>
#include <memory>

#include "prunex/strategies/gradient_strategy.h"

namespace prunex::strategies {

struct PowerSgdOptions {
  Reporting reporting;
  int64_t rank = 2;         ///< columns of the factors
  int64_t start_after = 0;  ///< steps with whole gradients before
  uint64_t seed = 0;        ///< of the first factors, the same on all ranks
};

/// One power iteration per step and tensor, from the last step's factor (warm start), with error feedback: algorithms 1
/// and 2. Filter banks are matrices of out x rest; tensors that would not shrink to a half (as PyTorch's hook has it)
/// and vectors go whole. Two all-reduces per step. Throws std::invalid_argument for a rank below 1.
std::unique_ptr<Strategy> make_powersgd(Replica& replica, comm::Hierarchy& ranks, const PowerSgdOptions& options);

}  // namespace prunex::strategies
