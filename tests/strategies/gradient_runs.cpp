#include "tests/strategies/gradient_runs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "prunex/comm/connect.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/strategy.h"
#include "tests/larger.h"

namespace prunex::strategies {
namespace {

/// Backward of a loss that has these gradients.
void backward(TensorDict& params, const TensorDict& gradients) {
  at::Tensor loss = at::zeros({}, gradients.front().value().scalar_type());
  for (const auto& gradient : gradients) loss = loss + (params[gradient.key()] * gradient.value()).sum();
  loss.backward();
}

void update(Replica& replica, double momentum, int64_t step) {
  at::NoGradGuard no_grad;
  for (auto& theta : replica.weights.params) {
    sgd_step(theta.value(), replica.optimizer["momentum"][theta.key()], theta.value().grad(), momentum, step);
    theta.value().mutable_grad().reset();
  }
}

std::vector<AfterStep> run_rank(comm::Hierarchy& ranks, const Make& make, const GradientRun& run) {
  const SmallProblem problem(ranks.layout.rank, run.type);
  Replica replica = problem.initial_replica();
  for (auto& theta : replica.weights.params) theta.value().set_requires_grad(true);
  const auto strategy = make(replica, ranks);
  std::vector<AfterStep> steps;
  const auto make_step = [&](int64_t step) {
    backward(replica.weights.params, problem.gradients(replica.weights.params));
    strategy->before_update(replica);
    update(replica, run.momentum, step);
  };
  const auto undo = [&](const TensorDict& params, const TensorDict& momentum, const State& state) {
    at::NoGradGuard no_grad;
    restore(replica.weights.params, params, "");
    restore(replica.optimizer["momentum"], momentum, "");
    strategy->go_back(state);
  };
  const auto state_of = [&run](const Strategy& of) { return run.states ? of.state() : State(); };
  const int nodes = ranks.layout.nodes(), working = nodes - run.newcomers;
  bool works = ranks.layout.node() < working;
  ranks.share = works ? static_cast<double>(nodes) / working : 0;
  for (int64_t step = 1; step <= run.steps; ++step) {
    if (run.only_exchanges && works) make_step(step);
    const TensorDict params = clones(replica.weights.params), momentum = clones(replica.optimizer["momentum"]);
    const State now = state_of(*strategy), state{clones(now.global), clones(now.node), clones(now.rank)};
    for (int again = 1; again < run.times; ++again) {
      if (run.only_exchanges) {
        strategy->after_update(replica, step);
      } else {
        make_step(step);
      }
      undo(params, momentum, state);
    }
    const comm::Volume before = comm::moved_by_exchanges(ranks);
    if (!run.only_exchanges && works) make_step(step);
    const Exchange exchange = strategy->after_update(replica, step);
    if (exchange.exchanged) {
      works = true;
      ranks.share = 1;
    }
    const int64_t sent = (comm::moved_by_exchanges(ranks) - before).sent_to_nodes;
    steps.push_back({clones(replica.weights.params), clones(merged(state_of(*strategy))), exchange, sent});
  }
  return steps;
}

}  // namespace

std::vector<std::vector<AfterStep>> run_steps(const comm::Layout& shape, const Make& make, const GradientRun& run) {
  std::vector<std::vector<AfterStep>> results(static_cast<size_t>(shape.world_size()));
  comm::run_ranks(shape, [&](comm::Hierarchy& ranks) {
    results[static_cast<size_t>(ranks.layout.rank)] = run_rank(ranks, make, run);
  });
  return results;
}

Make post_local(int64_t switch_after, const Reporting& reporting) {
  HsadmmOptions local;
  local.local.exchanges_before = switch_after;
  local.local.steps = reporting.steps;
  local.local.total_steps = reporting.total_steps;
  local.consensus.penalty.kappa = 0;
  local.after_freeze = AfterFreeze::kAverage;
  return [=](Replica& replica, comm::Hierarchy& ranks) {
    const auto second = [local, &ranks](Replica& from_here) { return make_hsadmm(from_here, ranks, local); };
    const auto first_again = [reporting, &ranks](Replica& as_it_was) {
      return make_ddp(as_it_was, ranks, {.reporting = reporting, .begin = Begin::kEqual});
    };
    return make_post_local(make_ddp(replica, ranks, {.reporting = reporting}), first_again, second, replica,
                           switch_after);
  };
}

void sgd_step(at::Tensor& theta, at::Tensor& velocity, const at::Tensor& gradient, double momentum, int64_t step) {
  velocity.mul_(momentum).add_(gradient);
  theta.sub_(velocity, learning_rate(step));
}

double worst_gap(const TensorDict& a, const TensorDict& b) {
  double worst = 0;
  for (const auto& item : a) worst = tests::larger(worst, (item.value() - b[item.key()]).abs().max().item<double>());
  return worst;
}

}  // namespace prunex::strategies
