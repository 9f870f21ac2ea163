// Residuals and the stopping test, from tensors of two nodes with three ranks each, stacked as the definitions say.
#include "prunex/admm/residuals.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "prunex/admm/updates.h"

namespace prunex::admm {
namespace {

constexpr int kTwoNodes = 2, kThreeRanks = 3;
constexpr double kRho1 = 0.3, kRho2 = 0.2;

at::Tensor random(uint64_t seed) {
  return at::randn({7}, at::detail::createCPUGenerator(seed), at::kDouble);
}

struct State {
  std::vector<at::Tensor> theta, u;                  // per rank
  std::vector<at::Tensor> z_node, z_node_before, v;  // per node
  at::Tensor z = random(1), z_before = random(2);
};

State random_state() {
  State state;
  for (uint64_t rank = 0; rank < kTwoNodes * kThreeRanks; ++rank) {
    state.theta.push_back(random(10 + rank));
    state.u.push_back(random(20 + rank));
  }
  for (uint64_t node = 0; node < kTwoNodes; ++node) {
    state.z_node.push_back(random(30 + node));
    state.z_node_before.push_back(random(40 + node));
    state.v.push_back(random(50 + node));
  }
  return state;
}

/// What every rank and node contributes, added up.
SquaredNorms sums_of(const State& state) {
  SquaredNorms sums;
  for (int rank = 0; rank < kTwoNodes * kThreeRanks; ++rank) {
    sums.theta_gap += squared_distance(state.theta[rank], state.z_node[rank / kThreeRanks]);
    sums.theta += squared_norm(state.theta[rank]);
    sums.u += squared_norm(state.u[rank]);
  }
  for (int node = 0; node < kTwoNodes; ++node) {
    sums.z_node_step += kThreeRanks * squared_distance(state.z_node[node], state.z_node_before[node]);
    sums.node_gap += squared_distance(state.z_node[node], state.z);
    sums.z_step += squared_distance(state.z, state.z_before);
    sums.z_node += kThreeRanks * squared_norm(state.z_node[node]);
    sums.v += squared_norm(state.v[node]);
  }
  return sums;
}

double norm(const std::vector<at::Tensor>& tensors) {
  return at::cat(tensors).norm().item<double>();
}

TEST(Residuals, AreNormsStackedOverRanksAndNodes) {
  const State state = random_state();
  std::vector<at::Tensor> gaps, node_gaps, node_steps;
  for (int rank = 0; rank < kTwoNodes * kThreeRanks; ++rank)
    gaps.push_back(state.theta[rank] - state.z_node[rank / kThreeRanks]);
  for (int node = 0; node < kTwoNodes; ++node) {
    node_gaps.push_back(state.z_node[node] - state.z);
    node_steps.push_back(state.z_node[node] - state.z_node_before[node]);
  }
  const auto residuals = residuals_of(sums_of(state), {kRho1, kRho2});
  EXPECT_NEAR(residuals.r_intra, norm(gaps), 1e-12);
  EXPECT_NEAR(residuals.s_intra, kRho1 * std::sqrt(kThreeRanks) * norm(node_steps), 1e-12);
  EXPECT_NEAR(residuals.r_inter, norm(node_gaps), 1e-12);
  EXPECT_NEAR(residuals.s_inter, kRho2 * std::sqrt(kTwoNodes) * norm({state.z - state.z_before}), 1e-12);
}

class StoppingTest : public testing::Test {
 protected:
  /// Whether residuals of these sizes pass; the scales are those of the sums.
  bool stops(const Residuals& residuals) const {
    return below_tolerance(sums_, residuals, {kRho1, kRho2}, {kTwoNodes, kThreeRanks}, kTolerance);
  }

  static constexpr double kTolerance = 1e-2;
  const State state_ = random_state();
  const SquaredNorms sums_ = sums_of(state_);
};

TEST_F(StoppingTest, BoundsEveryResidualByItsOwnScale) {
  std::vector<at::Tensor> z_of_ranks;
  for (int rank = 0; rank < kTwoNodes * kThreeRanks; ++rank) z_of_ranks.push_back(state_.z_node[rank / kThreeRanks]);
  const Residuals bounds{
      .r_intra = kTolerance * std::max(norm(state_.theta), norm(z_of_ranks)),
      .s_intra = kTolerance * kRho1 * norm(state_.u),
      .r_inter = kTolerance * norm(state_.z_node),
      .s_inter = kTolerance * kRho2 * norm(state_.v),
  };
  const double below = 1 - 1e-9, above = 1 + 1e-9;
  const auto scaled = [](Residuals r, double factor) {
    return Residuals{r.r_intra * factor, r.s_intra * factor, r.r_inter * factor, r.s_inter * factor};
  };
  EXPECT_TRUE(stops(scaled(bounds, below)));
  for (double Residuals::*one : {&Residuals::r_intra, &Residuals::s_intra, &Residuals::r_inter, &Residuals::s_inter}) {
    Residuals residuals = scaled(bounds, below);
    residuals.*one = bounds.*one * above;
    EXPECT_FALSE(stops(residuals));
  }
}

TEST_F(StoppingTest, DoesNotWaitForWhatIsZeroAnyway) {
  // One node: rho2, v and both inter-node residuals are 0, and so is their bound.
  const SquaredNorms sums{.theta_gap = 1e-12, .z_node_step = 1e-12, .theta = 1, .u = 1, .z_node = 1};
  const auto residuals = residuals_of(sums, {kRho1, 0});
  EXPECT_TRUE(below_tolerance(sums, residuals, {kRho1, 0}, {1, kThreeRanks}, 1e-3));
}

}  // namespace
}  // namespace prunex::admm
