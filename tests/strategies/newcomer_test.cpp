// Nodes that have made less than others count for less: one that has just joined for nothing, in its first exchange.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "prunex/comm/connect.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

/// z of every rank after the first exchange, in which the last `newcomers` of the nodes have made no step.
std::vector<TensorDict> first_z(int nodes, int newcomers, const HsadmmOptions& options,
                                at::ScalarType type = at::kDouble) {
  std::vector<TensorDict> all(static_cast<size_t>(2 * nodes));
  comm::run_ranks(nodes, 2, [&](comm::Hierarchy& ranks) {
    const SmallProblem problem(ranks.layout.rank, type);
    Replica replica = problem.initial_replica();
    const auto strategy = make_hsadmm(replica, ranks, options);
    const int working = nodes - newcomers;
    const bool works = ranks.layout.node() < working;
    if (newcomers > 0) ranks.share = works ? static_cast<double>(nodes) / working : 0;
    if (works) problem.train(replica, strategy->local_terms(), 1, options.local.steps);
    strategy->after_update(replica, options.local.steps);
    all[static_cast<size_t>(ranks.layout.rank)] = clones(strategy->product().params);
  });
  return all;
}

void expect_the_mean_of_the_others(const HsadmmOptions& options) {
  const auto with = first_z(3, 1, options), without = first_z(2, 0, options);
  for (const auto& z : with) {
    for (const auto& item : without[0]) {
      EXPECT_TRUE(at::allclose(z[item.key()], item.value(), 1e-12, 1e-12)) << item.key();
      EXPECT_TRUE(at::equal(z[item.key()], with[0][item.key()])) << item.key();
    }
  }
}

TEST(Newcomers, DoNotCountInTheMean) {
  expect_the_mean_of_the_others(averaging_options());
}

TEST(Newcomers, DoNotCountInAnOuterStep) {
  HsadmmOptions options = averaging_options();
  options.outer.from = 1;
  expect_the_mean_of_the_others(options);
}

TEST(Newcomers, DoNotCountInMasks) {
  HsadmmOptions options = averaging_options();
  options.masks.keep.start = 0;
  expect_the_mean_of_the_others(options);
  options.masks.rule = MaskRule::kUnion;
  expect_the_mean_of_the_others(options);
}

TEST(Newcomers, DoNotCountInRoundedMessages) {
  HsadmmOptions options = averaging_options();
  options.exchange.payload = Payload::kBf16;
  const auto with = first_z(3, 1, options, at::kFloat), without = first_z(2, 0, options, at::kFloat);
  for (const auto& item : without[0]) {
    EXPECT_TRUE(at::allclose(with[0][item.key()], item.value(), 0.01, 0.01)) << item.key();
    EXPECT_TRUE(at::equal(with[5][item.key()], with[0][item.key()])) << item.key();
  }
}

/// z after one exchange, and what it is the mean of: theta of each node's ranks.
void expect_weighted_mean(const HsadmmOptions& options, at::ScalarType type, double tolerance) {
  const std::vector<double> shares{1.5, 0.9, 0.6};  // of three nodes: 5, 3 and 2 of 10 steps
  std::vector<TensorDict> thetas(6), all(6);
  comm::run_ranks(3, 2, [&](comm::Hierarchy& ranks) {
    const auto rank = static_cast<size_t>(ranks.layout.rank);
    const SmallProblem problem(ranks.layout.rank, type);
    Replica replica = problem.initial_replica();
    const auto strategy = make_hsadmm(replica, ranks, options);
    ranks.share = shares[rank / 2];
    problem.train(replica, strategy->local_terms(), 1, options.local.steps);
    thetas[rank] = clones(replica.weights.params);
    strategy->after_update(replica, options.local.steps);
    all[rank] = clones(strategy->product().params);
  });
  for (const auto& item : thetas[0]) {
    at::Tensor mean = at::zeros_like(item.value());
    for (size_t rank = 0; rank < thetas.size(); ++rank) mean += thetas[rank][item.key()] * (shares[rank / 2] / 6);
    for (const TensorDict& z : all) {
      EXPECT_TRUE(at::allclose(z[item.key()], mean, tolerance, tolerance)) << item.key();
      EXPECT_TRUE(at::equal(z[item.key()], all[0][item.key()])) << item.key();
    }
  }
}

TEST(SlowNodes, CountByWhatTheyHaveMade) {
  expect_weighted_mean(averaging_options(), at::kDouble, 1e-12);
  HsadmmOptions options = averaging_options();
  options.exchange.payload = Payload::kBf16;
  expect_weighted_mean(options, at::kFloat, 0.01);
}

}  // namespace
}  // namespace prunex::strategies
