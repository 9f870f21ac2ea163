#include "prunex/admm/residuals.h"

#include <algorithm>
#include <cmath>

namespace prunex::admm {

Residuals residuals_of(const SquaredNorms& sums, double rho1, double rho2, int64_t nodes, int64_t ranks_per_node) {
  const double ranks = static_cast<double>(ranks_per_node);
  const double world = static_cast<double>(nodes) * ranks;
  return {.r_intra = std::sqrt(sums.theta_gap),
          .s_intra = rho1 * std::sqrt(sums.z_node_step),
          .r_inter = std::sqrt(sums.node_gap / ranks),
          .s_inter = rho2 * std::sqrt(static_cast<double>(nodes) * sums.z_step / world)};
}

bool below_tolerance(const SquaredNorms& sums, const Residuals& residuals, double rho1, double rho2, int64_t entries,
                     int64_t nodes, int64_t ranks_per_node, const Tolerance& tolerance) {
  const double ranks = static_cast<double>(ranks_per_node);
  const double per_node = static_cast<double>(entries) * static_cast<double>(nodes);
  const double floor_intra = std::sqrt(per_node * ranks) * tolerance.absolute;
  const double floor_inter = std::sqrt(per_node) * tolerance.absolute;
  const double z_node = std::sqrt(sums.z_node / ranks);
  const auto small = [&](double residual, double floor, double scale) {
    return residual <= floor + tolerance.relative * scale;  // on one node both sides are zero between nodes
  };
  return small(residuals.r_intra, floor_intra, std::sqrt(std::max(sums.theta, sums.z_node))) &&
         small(residuals.s_intra, floor_intra, rho1 * std::sqrt(sums.u)) &&
         small(residuals.r_inter, floor_inter, z_node) &&
         small(residuals.s_inter, floor_inter, rho2 * std::sqrt(sums.v / ranks));
}

}  // namespace prunex::admm
