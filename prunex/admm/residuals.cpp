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

bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, const Penalties& rho, int64_t entries,
                     const Shape& shape, const Tolerance& tolerance) {
  const double per_node = static_cast<double>(entries) * static_cast<double>(shape.nodes);
  const double floor_intra = std::sqrt(per_node * shape.ranks_per_node) * tolerance.absolute;
  const double floor_inter = std::sqrt(per_node) * tolerance.absolute;
  const double z_node = std::sqrt(sums.z_node / shape.ranks_per_node);
  const auto small = [&](double residual, double floor, double scale) {
    return residual <= floor + tolerance.relative * scale;  // on one node both sides are zero between nodes
  };
  return small(residuals.r_intra, floor_intra, std::sqrt(std::max(sums.theta, sums.z_node))) &&
         small(residuals.s_intra, floor_intra, rho.rho1 * std::sqrt(sums.u)) &&
         small(residuals.r_inter, floor_inter, z_node) &&
         small(residuals.s_inter, floor_inter, rho.rho2 * std::sqrt(sums.v));
}

}  // namespace prunex::admm
