// The equations of H-SADMM against what defines them: a gradient that vanishes, sums written out entry by entry.
#include "prunex/admm/updates.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/larger.h"

namespace prunex::admm {
namespace {

at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// What a node minimises over its own z: docs/algorithm.md, section 1.
struct NodeObjective {
  double rho1, rho2, lambda;
  std::vector<at::Tensor> theta, u;
  at::Tensor z, v;

  double operator()(const at::Tensor& z_node) const {
    double value = static_cast<double>(theta.size()) * lambda / 2 * z_node.square().sum().item<double>();
    for (size_t j = 0; j < theta.size(); ++j) {
      value += rho1 / 2 * (theta[j] - z_node + u[j]).square().sum().item<double>();
    }
    return value + rho2 / 2 * (z_node - z + v).square().sum().item<double>();
  }
};

NodeObjective random_objective(int64_t ranks, double rho1, double rho2, double lambda) {
  NodeObjective objective{rho1, rho2, lambda, {}, {}, random({3, 2}, 1), random({3, 2}, 2)};
  for (int64_t j = 0; j < ranks; ++j) {
    objective.theta.push_back(random({3, 2}, 10 + j));
    objective.u.push_back(random({3, 2}, 20 + j));
  }
  return objective;
}

at::Tensor candidate_of(const NodeObjective& objective) {
  at::Tensor sum = at::zeros_like(objective.z);
  for (size_t j = 0; j < objective.theta.size(); ++j) sum += objective.theta[j] + objective.u[j];
  update_node_candidate(sum, objective.z, objective.v,
                        {.rho1 = objective.rho1,
                         .rho2 = objective.rho2,
                         .ranks = static_cast<double>(objective.theta.size()),
                         .lambda = objective.lambda});
  return sum;
}

/// Central differences; exact for a quadratic but for rounding.
double largest_slope(const NodeObjective& objective, const at::Tensor& at_point) {
  constexpr double kStep = 1e-3;
  double largest = 0;
  for (int64_t i = 0; i < at_point.numel(); ++i) {
    at::Tensor up = at_point.clone(), down = at_point.clone();
    up.flatten()[i] += kStep;
    down.flatten()[i] -= kStep;
    largest = tests::larger(largest, std::abs(objective(up) - objective(down)) / (2 * kStep));
  }
  return largest;
}

TEST(NodeCandidate, SetsTheGradientOfTheAugmentedLagrangianToZero) {
  for (const int64_t ranks : {1, 3}) {
    for (const double rho2 : {0.0, 0.7}) {
      for (const double lambda : {0.0, 0.3}) {
        const auto objective = random_objective(ranks, 0.4, rho2, lambda);
        const at::Tensor zt = candidate_of(objective);
        EXPECT_LT(largest_slope(objective, zt), 1e-11) << ranks << " " << rho2 << " " << lambda;
        EXPECT_GT(largest_slope(objective, zt + 0.01), 1e-3);  // the slope of anything else is seen
      }
    }
  }
}

/// |z - mean of c| after consensus of two ranks of one node that have 1/2 (theta - c_j)^2 each.
double distance_from_the_minimum(double rho, bool as_printed) {
  const std::vector<double> c{1, 3};
  const at::Tensor none = at::zeros({1}, at::kDouble);
  std::vector<at::Tensor> theta(2), u{none.clone(), none.clone()};
  at::Tensor z = none.clone();
  for (int k = 0; k < 200; ++k) {
    at::Tensor sum = none.clone();
    for (size_t j = 0; j < 2; ++j) {
      theta[j] = (c[j] + rho * (z - u[j])) / (1 + rho);
      sum += theta[j] + u[j];
    }
    if (as_printed) {
      update_node_candidate_as_printed(sum, z, none, rho, 0, 0);
    } else {
      update_node_candidate(sum, none, none, {.rho1 = rho, .ranks = 2});
    }
    z = sum;
    for (size_t j = 0; j < 2; ++j) update_u(u[j], theta[j], z);
  }
  return std::abs(z.item<double>() - 2);
}

TEST(NodeCandidate, AsPrintedMissesTheMinimumOfTwoRanksOrDiverges) {
  EXPECT_LT(distance_from_the_minimum(0.5, false), 1e-9);
  EXPECT_GT(distance_from_the_minimum(0.5, true), 0.5);
  EXPECT_LT(distance_from_the_minimum(10, false), 1e-6);
  EXPECT_GT(distance_from_the_minimum(10, true), 1e6);
}

TEST(NodeCandidate, AsPrintedIsThePapersEquation) {
  const auto objective = random_objective(3, 0.4, 0.7, 0);
  at::Tensor sum = at::zeros_like(objective.z), want = at::empty_like(objective.z);
  for (size_t j = 0; j < 3; ++j) sum += objective.theta[j] + objective.u[j];
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 2; ++column) {
      const auto entry = [&](const at::Tensor& tensor) { return tensor[row][column].item<double>(); };
      const double above = 0.4 * entry(sum) + 0.7 * (entry(objective.z) - entry(objective.v));
      want[row][column] = above / (0.05 + 0.4 + 0.7);
    }
  }
  update_node_candidate_as_printed(sum, objective.z, objective.v, 0.4, 0.7, 0.05);
  EXPECT_LT((sum - want).abs().max().item<double>(), 1e-15);
}

TEST(NodeCandidate, IsTheMeanOfThetaPlusUWithoutRho2AndLambda) {
  const auto objective = random_objective(4, 1e-12, 0, 0);  // and never 0/0, however small rho1
  at::Tensor mean = at::zeros_like(objective.z);
  for (int j = 0; j < 4; ++j) mean += (objective.theta[j] + objective.u[j]) / 4;
  EXPECT_TRUE(at::allclose(candidate_of(objective), mean, 1e-14, 1e-14));
}

TEST(Duals, AddWhatIsLeftOfTheConstraint) {
  at::Tensor u = at::tensor({1.0, 2.0}, at::kDouble), v = at::tensor({-1.0, 0.5}, at::kDouble);
  update_u(u, at::tensor({5.0, 5.0}, at::kDouble), at::tensor({2.0, 7.0}, at::kDouble));
  update_v(v, at::tensor({2.0, 7.0}, at::kDouble), at::tensor({1.0, 8.0}, at::kDouble));
  EXPECT_TRUE(at::equal(u, at::tensor({4.0, 0.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(v, at::tensor({0.0, -0.5}, at::kDouble)));
  update_v(v, at::tensor({2.0, 7.0}, at::kDouble), at::tensor({1.0, 8.0}, at::kDouble), 0.5);
  EXPECT_TRUE(at::equal(v, at::tensor({0.5, -1.0}, at::kDouble)));
}

TEST(Duals, KeepRhoTimesDualWhenRhoChanges) {
  at::Tensor u = at::tensor({1.0, -3.0}, at::kDouble);
  rescale_dual(u, 0.5, 2.0);
  EXPECT_TRUE(at::equal(u, at::tensor({0.25, -0.75}, at::kDouble)));
  rescale_dual(u, 2.0, 2.0);
  EXPECT_TRUE(at::equal(u, at::tensor({0.25, -0.75}, at::kDouble)));
  rescale_dual(u, 2.0, 0.0);  // rho2 of a single node: nothing to keep, nothing to divide by
  EXPECT_TRUE(at::equal(u, at::tensor({0.25, -0.75}, at::kDouble)));
}

TEST(OuterStep, IsNesterovMomentumEntryByEntry) {
  constexpr double kRate = 0.7, kMomentum = 0.9;
  at::Tensor z = random({5}, 1), b = at::zeros({5}, at::kDouble);
  std::vector<double> want(z.data_ptr<double>(), z.data_ptr<double>() + 5), velocity(5, 0.0);
  for (uint64_t step = 0; step < 4; ++step) {
    const at::Tensor mean = random({5}, 10 + step);
    outer_step(z, mean, b, kRate, kMomentum);
    for (int i = 0; i < 5; ++i) {
      const double gradient = want[i] - mean[i].item<double>();
      velocity[i] = kMomentum * velocity[i] + gradient;
      want[i] -= kRate * (gradient + kMomentum * velocity[i]);
      EXPECT_NEAR(z[i].item<double>(), want[i], 1e-14);
      EXPECT_NEAR(b[i].item<double>(), velocity[i], 1e-14);
    }
  }
}

TEST(OuterStep, WithoutMomentumAtRateOneIsTheMean) {
  at::Tensor z = random({5}, 1), b = at::zeros({5}, at::kDouble);
  const at::Tensor mean = random({5}, 2);
  outer_step(z, mean, b, 1, 0);
  EXPECT_TRUE(at::allclose(z, mean, 0, 1e-15));
}

double naive_square(const at::Tensor& x) {
  double sum = 0;
  for (const double entry : std::vector<double>(x.data_ptr<double>(), x.data_ptr<double>() + x.numel())) {
    sum += entry * entry;
  }
  return sum;
}

TEST(Norms, AreSumsOfSquaresInAnyLayout) {
  for (const int64_t n : {0, 1, 3, 4, 5, 8, 11}) {  // around the four chains of the sum
    const at::Tensor a = random({n}, 1), b = random({n}, 2);
    EXPECT_NEAR(squared_norm(a), naive_square(a), 1e-14 * n);
    EXPECT_NEAR(squared_distance(a, b), naive_square(a - b), 1e-14 * n);
  }
  const at::Tensor a = random({2, 3, 2, 2}, 1), b = random({2, 3, 2, 2}, 2);
  const at::Tensor other = b.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_NEAR(squared_norm(other), naive_square(b), 1e-13);
  EXPECT_NEAR(squared_distance(a, other), naive_square(a - b), 1e-13);
  const at::Tensor part = random({4, 6}, 3).slice(1, 1, 4);
  EXPECT_NEAR(squared_norm(part), naive_square(part.contiguous()), 1e-13);
  EXPECT_NEAR(squared_distance(part, part * 2), naive_square(part.contiguous()), 1e-13);
}

TEST(Norms, OfFloatsAreSummedInDouble) {
  const at::Tensor a = at::full({1 << 20}, 1e-3f, at::kFloat);
  const double entry = static_cast<double>(1e-3f);
  EXPECT_NEAR(squared_norm(a), (1 << 20) * entry * entry, 1e-10);
  EXPECT_NEAR(squared_distance(a, at::zeros_like(a)), (1 << 20) * entry * entry, 1e-10);
  // In fp32 the difference is 3.
  const at::Tensor large = at::full({8, 4}, 3, at::kFloat), small = at::full({4, 8}, 1e-8f, at::kFloat).t();
  const double distance = 3 - static_cast<double>(1e-8f);
  EXPECT_NEAR(squared_distance(large, small), 32 * distance * distance, 1e-12);
}

}  // namespace
}  // namespace prunex::admm
