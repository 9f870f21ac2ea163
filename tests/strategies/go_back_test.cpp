// An exchange that a lost rank ended is undone and made again: as if it had been made once.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/strategies/scaffold.h"
#include "tests/strategies/gradient_runs.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

State copy_of(const State& state) {
  return {clones(state.global), clones(state.node), clones(state.rank)};
}

struct Copy {
  TensorDict params, buffers, momentum;
  explicit Copy(const Replica& replica)
      : params(clones(replica.weights.params)),
        buffers(clones(replica.weights.buffers)),
        momentum(clones(replica.optimizer["momentum"])) {}
  void into(Replica& replica) const {
    at::NoGradGuard no_grad;
    restore(replica.weights.params, params, "");
    restore(replica.weights.buffers, buffers, "");
    restore(replica.optimizer["momentum"], momentum, "");
  }
};

/// Of rank 0 after every exchange: its state, and theta; each exchange made `times` times.
std::vector<TensorDict> made(HsadmmOptions options, int times) {
  std::vector<TensorDict> states;
  comm::run_ranks(2, 2, [&](comm::Hierarchy& ranks) {
    const SmallProblem problem(ranks.layout.rank, at::kFloat);
    Replica replica = problem.initial_replica();
    const auto strategy = make_hsadmm(replica, ranks, options);
    for (int64_t step = 1; step <= options.local.total_steps; ++step) {
      problem.train(replica, strategy->local_terms(), step, step);
      const Copy weights(replica);
      const State before = copy_of(strategy->state());
      Exchange exchange = strategy->after_update(replica, step);
      for (int i = 1; i < times && exchange.exchanged; ++i) {
        weights.into(replica);
        strategy->go_back(before);
        exchange = strategy->after_update(replica, step);
      }
      if (!exchange.exchanged || ranks.layout.rank != 0) continue;
      TensorDict state = clones(merged(strategy->state()));
      for (const auto& item : replica.weights.params)
        state.insert("theta/" + item.key(), item.value().detach().clone());
      for (const auto& item : strategy->local_terms().anchor)
        state.insert("anchor/" + item.key(), item.value().clone());
      for (const auto& item : strategy->local_terms().masks) state.insert("masks/" + item.key(), item.value().clone());
      states.push_back(state);
    }
  });
  return states;
}

void expect_the_same_again(const HsadmmOptions& options) {
  const auto once = made(options, 1), twice = made(options, 2);
  ASSERT_EQ(once.size(), twice.size());
  ASSERT_GE(once.size(), 6U);
  for (size_t k = 0; k < once.size(); ++k) {
    ASSERT_EQ(once[k].size(), twice[k].size()) << "exchange " << k + 1;
    for (const auto& item : once[k]) {
      EXPECT_TRUE(at::equal(item.value(), twice[k][item.key()])) << "exchange " << k + 1 << ": " << item.key();
    }
  }
}

TEST(GoBack, UndoesAnExchangeOfHsadmmAndItsFreeze) {
  expect_the_same_again(default_options());
}

TEST(GoBack, UndoesAnExchangeOfThePapersForm) {
  expect_the_same_again(paper_options());
}

TEST(GoBack, UndoesRoundedMessagesAndOuterSteps) {
  HsadmmOptions options = default_options();
  options.exchange.payload = Payload::kInt2;
  options.outer.from = 2;
  expect_the_same_again(options);
  options.consensus.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kNesterov;
  expect_the_same_again(options);
}

TEST(GoBack, UndoesDualsAfterTheFreeze) {
  HsadmmOptions options = default_options();
  options.after_freeze = AfterFreeze::kAdmm;
  expect_the_same_again(options);
}

TEST(GoBack, UndoesStepsOfGradients) {
  const Reporting reporting{2, 6};
  const auto expect_the_same = [](const Make& make, double momentum, bool only_exchanges = false) {
    GradientRun run{.steps = 6, .momentum = momentum, .type = at::kFloat, .only_exchanges = only_exchanges};
    const auto once = run_steps(comm::Layout::even(2, 2), make, run);
    run.times = 3;
    const auto again = run_steps(comm::Layout::even(2, 2), make, run);
    for (size_t rank = 0; rank < once.size(); ++rank) {
      for (size_t step = 0; step < once[rank].size(); ++step) {
        for (const auto& item : once[rank][step].state) {
          EXPECT_TRUE(at::equal(item.value(), again[rank][step].state[item.key()])) << step << ": " << item.key();
        }
      }
    }
  };
  expect_the_same(
      [&](Replica& replica, comm::Hierarchy& ranks) { return make_ddp(replica, ranks, {.reporting = reporting}); },
      kMomentum);
  expect_the_same(
      [&](Replica& replica, comm::Hierarchy& ranks) {
        return make_top_k(replica, ranks, {.reporting = reporting, .density = 0.1, .dgc = true, .dgc_options = {}});
      },
      0);
  expect_the_same(
      [&](Replica& replica, comm::Hierarchy& ranks) {
        return make_powersgd(replica, ranks, {.reporting = reporting, .rank = 1, .least_shrinkage = 1});
      },
      kMomentum);
  const ScaffoldOptions scaffold{.local = {.steps = 2, .total_steps = 6, .learning_rate = learning_rate},
                                 .exchange = {.payload = Payload::kBf16}};
  expect_the_same([&](Replica& replica, comm::Hierarchy& ranks) { return make_scaffold(replica, ranks, scaffold); },
                  kMomentum, true);
  HsadmmOptions local = default_options();
  local.local.steps = reporting.steps;
  local.local.total_steps = reporting.total_steps;
  expect_the_same(
      [&](Replica& replica, comm::Hierarchy& ranks) {
        return make_averaging_in_node(make_hsadmm(replica, ranks, local), replica, ranks, reporting);
      },
      kMomentum, true);
  expect_the_same(post_local(2, reporting), kMomentum);
  expect_the_same(post_local(2, reporting), kMomentum, true);
}

}  // namespace
}  // namespace prunex::strategies
