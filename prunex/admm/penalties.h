// How rho1 and rho2 change from one outer iteration to the next.
#pragma once

#include <cstdint>
#include <functional>

#include "prunex/admm/residuals.h"

namespace prunex::admm {

enum class PenaltyRule {
  kKappa,      ///< rho1 = kappa (1 - momentum) / sum of step sizes: docs/algorithm.md, section 4
  kResidual,   ///< residual balancing per tensor (Boyd et al. 2011, section 3.4.1)
  kGeometric,  ///< times `growth` in every iteration
  kFixed,
};

struct PenaltyOptions {
  PenaltyRule rule = PenaltyRule::kKappa;
  double kappa = 0.3;        ///< strength of the pull towards z_node per outer iteration; 0: no ADMM at all
  double rho2_ratio = 0.25;  ///< kKappa: rho2 = rho2_ratio P rho1
  double rho1 = 0.0015;      ///< first values of the other rules
  double rho2 = 0.00015;
  double rho1_max = 0;  ///< caps; 0: 0.05 / largest step size under kKappa, none under the other rules
  double rho2_max = 0;
  double mu = 10;                       ///< kResidual: act when one residual exceeds mu times the other …
  double tau = 2;                       ///< … by this factor
  double growth = 1.3;                  ///< kGeometric
  int64_t adapt_until = 1'000'000'000;  ///< the first iteration that no longer changes rho
};

/// What the local optimizer does in one outer iteration, for kKappa.
struct StepSizes {
  double sum = 0;      ///< of the learning rates of the iteration's steps
  double largest = 0;  ///< learning rate of the whole run
  double momentum = 0;
};

/// Checks ranges; throws std::invalid_argument that names the option.
void check(const PenaltyOptions& options);

/// rho of the first iteration. On one node rho2 is 0.
Penalties first_penalties(const PenaltyOptions& options, const StepSizes& steps, int64_t nodes, double ranks_per_node);

/// rho of iteration k + 1 from that of iteration k and its residuals (of one tensor).
Penalties next_penalties(const PenaltyOptions& options, const Penalties& now, const Residuals& residuals, int64_t k,
                         const StepSizes& next_steps, int64_t nodes, double ranks_per_node);

}  // namespace prunex::admm
