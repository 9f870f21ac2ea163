// What H-SADMM loses with a cut, keeps, and goes on from.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/hsadmm/hsadmm_strategy.h"

namespace prunex::strategies {
void Hsadmm::cut(const sparsity::Cut& cut, Replica&) {
  TORCH_CHECK(frozen_ || masks_.groups().empty(), "[strategies] a cut before the masks are final");
  TORCH_CHECK(!flight_, "[strategies] a cut while an exchange is on its way");
  at::NoGradGuard no_grad;
  is_cut_ = true;
  sparsity::apply_cut(z_, cut);
  sparsity::apply_cut(outer_, cut);
  if (duals_) duals_->cut(cut);
  support_ = sparsity::apply_cut(support_, cut);
  work_.cut(cut, z_, support_);
  use_support();
  set_terms();
}

State Hsadmm::state() const {
  if (flight_) throw std::runtime_error("an exchange is on its way: wanted a state of a step that ends with one");
  State state;
  store(state.global, State::kZ, z_.params);
  store(state.global, State::kZ, z_.buffers);
  store(state.global, "outer/", outer_);
  masks_.save(state);
  state.global.insert("progress",
                      at::tensor({k_, int64_t{frozen_}, int64_t{duals_.has_value()}, masks_.stable()}, at::kLong));
  state.global.insert("nodes", at::tensor({int64_t{ranks_.layout().nodes()}, int64_t{lost_nodes_}}, at::kLong));
  if (duals_) duals_->save(state);
  work_.save(state);
  if (options_.local.exchanges_before > 0) work_.save_shards(state);
  return state;
}

void Hsadmm::go_back(const State& before) {
  TORCH_CHECK(!flight_ && !one_node_, "[strategies] hsadmm does not outlive ranks beside an exchange, or as one node");
  at::NoGradGuard no_grad;
  restore_progress(before);
  restore_tensors(before);
  if (saved_numbers<int64_t, 2>(before.global, "nodes")[1] != 0) lost_nodes_ = true;
}

/// Where the run is, and its masks, unless they are those of the network before a cut.
void Hsadmm::restore_progress(const State& state) {
  const auto [k, frozen, has_duals, stable] = saved_numbers<int64_t, 4>(state.global, "progress");
  k_ = k;
  frozen_ = frozen != 0;
  if (has_duals == 0) duals_.reset();
  if (has_duals != 0 && !duals_) make_duals();
  if (is_cut_) return;
  masks_.load(state, stable);
  set_support();
}

void Hsadmm::restore_tensors(const State& state) {
  const bool stepped = std::any_of(state.global.begin(), state.global.end(),
                                   [](const auto& item) { return item.key().starts_with("outer/"); });
  if (stepped && outer_.is_empty()) outer_ = zeros_like(z_.params);
  if (!stepped) outer_ = TensorDict();
  restore(z_.params, state.global, State::kZ);
  restore(z_.buffers, state.global, State::kZ);
  restore(outer_, state.global, "outer/");
  if (duals_) duals_->load(state);
  work_.load(state);
  set_terms();
}

void Hsadmm::load(const State& state, const sparsity::Cut* cut_before, Replica& replica) {
  TORCH_CHECK(!flight_, "[strategies] a state is loaded while an exchange is on its way");
  at::NoGradGuard no_grad;
  restore_progress(state);
  if (cut_before != nullptr) cut(*cut_before, replica);
  if (options_.local.exchanges_before > 0) {
    work_.load_shards(state);
    if (duals_) duals_->forget_v();
    work_.set_alive(support_);
    use_support();
  }
  restore_tensors(state);
  const auto [nodes, has_lost] = saved_numbers<int64_t, 2>(state.global, "nodes");
  if (has_lost != 0 || nodes > ranks_.layout().nodes()) lost_nodes_ = true;
}

}  // namespace prunex::strategies
