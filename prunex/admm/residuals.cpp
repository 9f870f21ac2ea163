#include "prunex/admm/residuals.h"

#include <algorithm>
#include <cmath>

namespace prunex::admm {

Residuals residuals_of(const SquaredNorms& sums, const Penalties& rho) {
  return {.r_intra = std::sqrt(sums.theta_gap),
          .s_intra = rho.rho1 * std::sqrt(sums.z_node_step),
          .r_inter = std::sqrt(sums.node_gap),
          .s_inter = rho.rho2 * std::sqrt(sums.z_step)};
}

Residuals combined(const std::vector<Residuals>& residuals) {
  Residuals all;
  for (double Residuals::*norm : {&Residuals::r_intra, &Residuals::s_intra, &Residuals::r_inter, &Residuals::s_inter}) {
    for (const auto& one : residuals) all.*norm = std::hypot(all.*norm, one.*norm);
  }
  return all;
}

bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, const Penalties& rho,
                     const NodesAndRanks& cluster, double tolerance) {
  // On one node both sides are zero between nodes.
  const double z_node = std::sqrt(sums.z_node / cluster.ranks_per_node);
  return residuals.r_intra <= tolerance * std::sqrt(std::max(sums.theta, sums.z_node)) &&
         residuals.s_intra <= tolerance * rho.rho1 * std::sqrt(sums.u) && residuals.r_inter <= tolerance * z_node &&
         residuals.s_inter <= tolerance * rho.rho2 * std::sqrt(sums.v);
}

}  // namespace prunex::admm
