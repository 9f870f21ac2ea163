// Nodes that have made less than others count for less: one that has just joined for nothing, in its first exchange.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/comm/store.h"
#include "tests/groups.h"
#include "tests/larger.h"
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

/// Long enough for masks to change often; never frozen.
HsadmmOptions restless_options(MaskRule rule) {
  HsadmmOptions options = default_options();
  options.masks.groups = tests::groups_of_every_kind(0.4);
  options.masks.keep.end = 8;
  options.masks.rule = rule;
  options.masks.freeze_after = std::numeric_limits<int64_t>::max();
  options.local.total_steps = 36;
  options.consensus.aux = AuxTensors::kAdmm;
  return options;
}

/// Of three nodes of one rank each, in exchange `k`.
double changing_share(int node, int64_t k) {
  constexpr double kShares[] = {1.5, 1, 0.5};
  return kShares[(node + k) % 3];
}

// So that what compaction leaves out is zero; docs/algorithm.md, section 2.
TEST(SlowNodes, KeepTheSumOfTheNodesDualsAtZero) {
  for (const auto rule : {MaskRule::kJoint, MaskRule::kUnion}) {
    const HsadmmOptions options = restless_options(rule);
    std::vector<std::vector<TensorDict>> after(3);  // by node, then exchange
    comm::run_ranks(3, 1, [&](comm::Hierarchy& ranks) {
      const int node = ranks.layout.rank;
      const SmallProblem problem(node);
      Replica replica = problem.initial_replica();
      const auto strategy = make_hsadmm(replica, ranks, options);
      for (int64_t step = 1; step <= options.local.total_steps; ++step) {
        problem.train(replica, strategy->local_terms(), step, step);
        ranks.share = changing_share(node, step / options.local.steps);
        if (strategy->after_update(replica, step).exchanged) {
          after[static_cast<size_t>(node)].push_back(clones(merged(strategy->state())));
        }
      }
    });
    double largest = 0;
    for (size_t k = 0; k < after[0].size(); ++k) {
      for (const auto& item : after[0][k]) {
        if (!item.key().starts_with("v/")) continue;
        const at::Tensor sum = item.value() + after[1][k][item.key()] + after[2][k][item.key()];
        EXPECT_LE(sum.abs().max().item<double>(), 1e-12) << item.key() << " after exchange " << k + 1;
        largest = std::max(largest, item.value().abs().max().item<double>());
      }
    }
    EXPECT_GT(largest, 0.1);
  }
}

// Nodes that agree stay where they are: consensus ADMM ends at the minimum of all, whatever the nodes weigh.
TEST(SlowNodes, AgreeOnTheMinimumOfAll) {
  HsadmmOptions options = restless_options(MaskRule::kJoint);
  options.masks.groups.clear();
  options.consensus.penalty = {.rule = admm::PenaltyRule::kFixed, .rho1 = 0.5, .rho2 = 0.5};
  options.local.steps = 1;
  options.local.total_steps = 300;
  const TensorDict minimum = SmallProblem::common_minimum(problems_of(3));
  comm::run_ranks(3, 1, [&](comm::Hierarchy& ranks) {
    const SmallProblem problem(ranks.layout.rank);
    Replica replica = problem.initial_replica();
    const auto strategy = make_hsadmm(replica, ranks, options);
    for (int64_t step = 1; step <= options.local.total_steps; ++step) {
      problem.minimise(replica, strategy->local_terms());
      ranks.share = changing_share(ranks.layout.rank, step);
      strategy->after_update(replica, step);
    }
    for (const auto& item : minimum) {
      const at::Tensor gap = strategy->product().params[item.key()] - item.value();
      EXPECT_LT(gap.abs().max().item<double>(), 1e-6) << item.key();
    }
  });
}

/// From a state: that of the run with all nodes, or one that those who are left have saved before their next exchange.
enum class Goes { kOn, kBack, kOnFromAState, kOnFromALaterState };

Replica copy_of(const Replica& replica) {
  Replica copy{{clones(replica.weights.params), clones(replica.weights.buffers)}, OptimizerState()};
  for (const auto& state : replica.optimizer) copy.optimizer.insert(state.key(), clones(state.value()));
  return copy;
}

/// From a state with v = 0.
State without_v(const State& state) {
  State copy{clones(state.global), clones(state.node), clones(state.rank)};
  for (const auto& item : copy.rank) {
    if (item.key().starts_with("v/")) item.value().zero_();
  }
  copy.global["nodes"].copy_(at::tensor({2, 0}, at::kLong));
  return copy;
}

/// v of those who are left, which do not add up to zero, is forgotten: the exchange is the one of v = 0, and leaves a
/// sum of zero.
void expect_duals_without_a_node(Goes goes) {
  const HsadmmOptions options = restless_options(MaskRule::kUnion);
  constexpr int64_t kBefore = 15;  // steps
  const auto others = comm::make_memory_store();
  std::vector<TensorDict> before(2), after(2), expected(2);
  comm::run_ranks(3, 1, [&](comm::Hierarchy& ranks) {
    const int node = ranks.layout.rank;
    const SmallProblem problem(node);
    Replica replica = problem.initial_replica();
    auto strategy = make_hsadmm(replica, ranks, options);
    const auto train = [&](int64_t step) {
      problem.train(replica, strategy->local_terms(), step, step);
      strategy->after_update(replica, step);
    };
    for (int64_t step = 1; step <= kBefore; ++step) train(step);
    if (node == 2) return;
    const State state = strategy->state();
    State copy{clones(state.global), clones(state.node), clones(state.rank)};
    before[static_cast<size_t>(node)] = copy.rank;
    if (goes == Goes::kOnFromALaterState) copy.global["nodes"].copy_(at::tensor({2, 1}, at::kLong));
    const auto connect = ranks.connect_others;
    comm::Hierarchy left = connect({{1, 1}, node}, *others, std::chrono::minutes(1));
    std::swap(ranks, left);  // what the ranks had is open until all are done
    if (goes == Goes::kOnFromAState || goes == Goes::kOnFromALaterState) {
      strategy = make_hsadmm(replica, ranks, options);
      strategy->load(copy, nullptr, replica);
    } else {
      strategy->note_change(true);
    }
    if (goes == Goes::kBack) strategy->go_back(copy);
    const Replica begin = copy_of(replica);
    const auto train_on = [&] {
      for (int64_t step = kBefore + 1; step <= kBefore + options.local.steps; ++step) train(step);
      return clones(merged(strategy->state()));
    };
    after[static_cast<size_t>(node)] = train_on();
    replica = copy_of(begin);
    strategy = make_hsadmm(replica, ranks, options);
    strategy->load(without_v(copy), nullptr, replica);
    expected[static_cast<size_t>(node)] = train_on();
    ranks.world->barrier();
  });
  for (const auto& item : expected[0]) EXPECT_TRUE(at::equal(after[0][item.key()], item.value())) << item.key();
  double off = 0;
  for (const auto& item : after[0]) {
    if (!item.key().starts_with("v/")) continue;
    off = tests::larger(off, (before[0][item.key()] + before[1][item.key()]).abs().max().item<double>());
    EXPECT_LE((item.value() + after[1][item.key()]).abs().max().item<double>(), 1e-12) << item.key();
  }
  EXPECT_GT(off, 0.01);
}

// A node is lost in an exchange, which is undone, or behind one that the others have, or between two parts of a run.
TEST(LostNodes, TakeTheOthersVWithThem) {
  for (const Goes goes : {Goes::kBack, Goes::kOn, Goes::kOnFromAState, Goes::kOnFromALaterState}) {
    SCOPED_TRACE(static_cast<int>(goes));
    expect_duals_without_a_node(goes);
  }
}

}  // namespace
}  // namespace prunex::strategies
