// Primal and dual residuals of both levels, and when they are small enough.
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

struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// M nodes of P ranks on average.
struct Shape {
  int64_t nodes = 1;
  double ranks_per_node = 1;
};

Residuals residuals_of(const SquaredNorms& sums, const Penalties& rho);

/// The root of the sum of squares.
Residuals combined(const std::vector<Residuals>& residuals);

/// The stopping test of Boyd et al. 2011, section 3.3, on both levels, for tensors with n entries in all.
bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, const Penalties& rho, int64_t entries,
                     const Shape& shape, const Tolerance& tolerance);

}  // namespace prunex::admm
