// Primal and dual residuals of both levels, and the penalties rho1 and rho2 that follow from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace prunex::admm {

/// Norms of one tensor, stacked over ranks (intra) and nodes (inter); section 3.4 of the paper, s_inter corrected.
struct Residuals {
  double r_intra = 0;  ///< |theta - z_node|
  double s_intra = 0;  ///< rho1 sqrt(P) |z_node - z_node_old|
  double r_inter = 0;  ///< |z_node - z|
  double s_inter = 0;  ///< rho2 sqrt(M) |z - z_old|
};

/// Squared norms of one tensor, or one rank's contribution to their sums: every rank adds what it has of its own
/// weights and, once per node, what it has of the node's.
struct SquaredNorms {
  static constexpr int64_t kCount = 8;

  double theta_gap = 0;     ///< sum over ranks of |theta - z_node|^2
  double z_node_step = 0;   ///< sum over nodes of P_i |z_node - z_node_old|^2
  double node_gap = 0;      ///< sum over nodes of |z_node - z|^2
  double z_step = 0;        ///< sum over nodes of |z - z_old|^2
  double theta = 0, u = 0;  ///< sums over ranks of |theta|^2, |u|^2
  double z_node = 0;        ///< sum over nodes of P_i |z_node|^2
  double v = 0;             ///< sum over nodes of |v|^2
};

struct Penalties {
  double rho1 = 0;
  double rho2 = 0;
  bool operator==(const Penalties&) const = default;
};

/// M nodes of P ranks on average.
struct NodesAndRanks {
  int64_t nodes = 1;
  double ranks_per_node = 1;
};

Residuals residuals_of(const SquaredNorms& sums, const Penalties& rho);

/// The root of the sum of squares.
Residuals combined(const std::vector<Residuals>& residuals);

/// The stopping test of Boyd et al. 2011, section 3.3, on both levels, with their relative tolerance alone.
bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, const Penalties& rho,
                     const NodesAndRanks& cluster, double tolerance);

// How rho1 and rho2 change from one outer iteration to the next.

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
  double mu = 10;       ///< kResidual: act when one residual exceeds mu times the other …
  double tau = 2;       ///< … by this factor
  double growth = 1.3;  ///< kGeometric
};

/// What the local optimizer does in one outer iteration, for kKappa.
struct StepSizes {
  double sum = 0;      ///< of the learning rates of the iteration's steps
  double largest = 0;  ///< learning rate of the whole run
  double momentum = 0;
};

/// Checks ranges; throws std::invalid_argument that names the option.
void check(const PenaltyOptions& options);

/// On a single node rho2 pulls nowhere: what Eq. 9 then has instead of it. The rules keep it for when there are more.
inline Penalties in_force(const Penalties& rho, const NodesAndRanks& cluster) {
  return {rho.rho1, cluster.nodes == 1 ? 0 : rho.rho2};
}

/// rho of the first iteration.
Penalties first_penalties(const PenaltyOptions& options, const StepSizes& steps, const NodesAndRanks& cluster);

/// rho of the next iteration from that of this one and its residuals (of one tensor).
Penalties next_penalties(const PenaltyOptions& options, const Penalties& now, const Residuals& residuals,
                         const StepSizes& next_steps, const NodesAndRanks& cluster);

}  // namespace prunex::admm
