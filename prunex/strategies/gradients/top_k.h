// Top-k: every rank sends the largest entries of its gradients alone.
#pragma once

#include <cstdint>
#include <memory>

#include "prunex/strategies/gradients/gradient_strategy.h"

namespace prunex::strategies {

/// Deep gradient compression (arXiv 1712.01887): momentum lives in the strategy, the optimizer must have none.
struct DgcOptions {
  double momentum = 0.9;
  int64_t warmup_steps = 0;  ///< the density falls from a quarter to the final one over so many steps, exponentially
  double clip = 0;           ///< largest norm of all ranks' gradients together; each rank's is clipped at clip/sqrt(N)
};

struct TopKOptions {
  Reporting reporting;
  double density = 0.01;       ///< share of the entries that a rank sends of every matrix or filter bank, at least one
  bool error_feedback = true;  ///< keep what is not sent; without it this is a weak baseline
  bool dgc = false;
  DgcOptions dgc_options;
};

/// Throws std::invalid_argument for a density outside (0, 1], or DGC without error feedback.
void check(const TopKOptions& options);

/// Sent are values (fp32) and places (int32); vectors (batch norm, biases) go whole. All ranks add up all ranks'
/// entries in the order of ranks.
std::unique_ptr<Strategy> make_top_k(Replica& replica, comm::Hierarchy& ranks, const TopKOptions& options);

/// Density at a step, from 1: warm-up of DGC, section 3.3.
double density_at(const TopKOptions& options, int64_t step);

}  // namespace prunex::strategies
