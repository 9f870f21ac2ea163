#include "prunex/strategies/gradients/gradient_strategy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <vector>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/start.h"

namespace prunex::strategies {

GradientStrategy::GradientStrategy(Replica& replica, comm::Hierarchy& ranks, const Reporting& reporting, Begin begin)
    : reporting_(reporting), product_{detached(replica.weights.params), replica.weights.buffers} {
  if (reporting.steps < 1 || reporting.total_steps < 1) {
    throw std::invalid_argument("`local_steps`: wanted 1 or more, in a run of 1 or more steps");
  }
  if (begin == Begin::kEqual) {
    expect_usable(product_.params);
  } else {
    start_equal(product_, *ranks.world);
  }
}

/// What is not trained stays without a gradient: zeros would let weight decay move it.
void GradientStrategy::before_update(Replica& replica) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> frozen;
  for (const auto& theta : replica.weights.params) {
    if (!theta.value().requires_grad() && !theta.value().grad().defined()) frozen.push_back(theta.value());
  }
  average_gradients(replica.weights.params);
  for (at::Tensor& theta : frozen) theta.mutable_grad().reset();
}

Exchange GradientStrategy::after_update(Replica&, int64_t step) {
  if (!ends_interval(step, reporting_.steps, reporting_.total_steps)) return {};
  return {.exchanged = true, .index = ++index_};
}

void GradientStrategy::cut(const sparsity::Cut& cut, Replica& replica) {
  product_ = {detached(replica.weights.params), replica.weights.buffers};
  cut_state(cut, replica);
}

State GradientStrategy::state() const {
  State state;
  store(state.global, State::kZ, product_.params);
  store(state.global, State::kZ, product_.buffers);
  state.global.insert("progress", at::tensor({index_}, at::kLong));
  return state;
}

void GradientStrategy::load(const State& state, const sparsity::Cut* cut_before, Replica& replica) {
  at::NoGradGuard no_grad;
  if (cut_before != nullptr) cut(*cut_before, replica);
  restore(product_.params, state.global, State::kZ);
  restore(product_.buffers, state.global, State::kZ);
  go_back(state);
}

void GradientStrategy::go_back(const State& before) {
  at::NoGradGuard no_grad;
  index_ = saved_numbers<int64_t, 1>(before.global, "progress")[0];
  restore_own(before);
}

}  // namespace prunex::strategies
