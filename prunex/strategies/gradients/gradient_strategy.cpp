#include "prunex/strategies/gradients/gradient_strategy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "prunex/strategies/dictionaries.h"

namespace prunex::strategies {

GradientStrategy::GradientStrategy(Replica& replica, comm::Hierarchy& ranks, const Reporting& reporting, Begin begin)
    : reporting_(reporting), product_{detached(replica.weights.params), replica.weights.buffers} {
  if (reporting.steps < 1 || reporting.total_steps < 1) {
    throw std::invalid_argument("`local_steps`: wanted 1 or more, in a run of 1 or more steps");
  }
  if (begin == Begin::kEqual) return;
  at::NoGradGuard no_grad;
  for (auto& tensor : product_.params) ranks.world->broadcast(tensor.value());
  for (auto& tensor : product_.buffers) ranks.world->broadcast(tensor.value());
}

void GradientStrategy::before_update(Replica& replica) {
  at::NoGradGuard no_grad;
  average_gradients(replica.weights.params);
}

Exchange GradientStrategy::after_update(Replica&, int64_t step) {
  if (step % reporting_.steps != 0 && step != reporting_.total_steps) return {};
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
  index_ = before.global["progress"].const_data_ptr<int64_t>()[0];
  restore_own(before);
}

}  // namespace prunex::strategies
