// Primal and dual residuals of both levels, and when they are small enough.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace prunex::admm {

/// Norms of one tensor, stacked over ranks (intra) and nodes (inter); section 3.4 of the paper, s_inter corrected.
struct Residuals {
  double r_intra = 0;  ///< |theta - z_node|
  double s_intra = 0;  ///< rho1 sqrt(P) |z_node - z_node_old|
  double r_inter = 0;  ///< |z_node - z|
  double s_inter = 0;  ///< rho2 sqrt(M) |z - z_old|
};

/// Squared norms that one rank contributes to the residuals and to the scales of the stopping test. Adding the
/// contributions of all ranks gives the sums over ranks; sums over nodes are those divided by P.
struct SquaredNorms {
  static constexpr int64_t kCount = 8;

  double theta_gap = 0;    ///< |theta - z_node|^2
  double z_node_step = 0;  ///< |z_node - z_node_old|^2
  double node_gap = 0;     ///< |z_node - z|^2
  double z_step = 0;       ///< |z - z_old|^2
  double theta = 0, z_node = 0, u = 0, v = 0;
};

struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// sums: over all M nodes x P ranks.
Residuals residuals_of(const SquaredNorms& sums, double rho1, double rho2, int64_t nodes, int64_t ranks_per_node);

/// The stopping test of Boyd et al. 2011, section 3.3, on both levels, for tensors with n entries in all.
bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, double rho1, double rho2, int64_t entries,
                     int64_t nodes, int64_t ranks_per_node, const Tolerance& tolerance);

}  // namespace prunex::admm
