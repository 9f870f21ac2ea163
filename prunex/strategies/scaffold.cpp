#include "prunex/strategies/scaffold.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <stdexcept>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/exchange/exchange_buffer.h"
#include "prunex/strategies/start.h"

namespace prunex::strategies {
namespace {

const LocalSgd& checked_scaffold(const ScaffoldOptions& options) {
  const LocalSgd& local = options.local;
  if (options.exchange.payload > Payload::kFp16) {
    throw std::invalid_argument(
        fmt::format("`payload`: got {}, scaffold has fp32, bf16 and fp16", name_of(options.exchange.payload)));
  }
  if (local.steps < 1 || local.total_steps < 1) {
    throw std::invalid_argument("`local_steps`: wanted 1 or more, in a run of 1 or more steps");
  }
  if (!local.learning_rate) throw std::invalid_argument("learning_rate: got none, wanted a function of the step");
  return local;
}

class Scaffold final : public Strategy {
 public:
  Scaffold(Replica& replica, comm::Hierarchy& ranks, const ScaffoldOptions& options);

  const LocalTerms& local_terms() const override { return no_terms_; }
  void before_update(Replica& replica) override;
  Exchange after_update(Replica& replica, int64_t step) override;
  void finish() override {}
  const Weights& product() const override { return z_; }
  const sparsity::Masks& masks() const override { return no_masks_; }
  void cut(const sparsity::Cut& cut, Replica& replica) override;
  State state() const override;
  void go_back(const State& before) override;
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) override;

 private:
  void forget_gradients();
  void update_controls();
  void restart(Replica& replica);
  void set_correction();

  const LocalSgd local_;
  RailExchange ranks_;
  PhaseClock clock_;
  int64_t k_ = 0;
  int64_t step_ = 0;  // local steps begun

  Weights z_;
  TensorDict c_, c_node_;    // control variates of all, and of this node
  TensorDict correction_;    // c - c_node
  TensorDict gradient_sum_;  // of this rank's steps before the next exchange, times the rates; kept until the one after
  double rate_sum_ = 0;
  bool has_exchanged_ = false;  // since its last step
  ExchangeBuffer weights_, controls_;
  ShardedCompaction whole_;  // of the control variates: nothing is left out

  LocalTerms no_terms_;
  sparsity::Masks no_masks_;
};

Scaffold::Scaffold(Replica& replica, comm::Hierarchy& ranks, const ScaffoldOptions& options)
    : local_(checked_scaffold(options)),
      ranks_(ranks, options.exchange.form),
      k_(local_.exchanges_before),
      step_(k_ * local_.steps),
      z_{clones(replica.weights.params), clones(replica.weights.buffers)},
      c_(zeros_like(z_.params)),
      c_node_(zeros_like(z_.params)),
      correction_(zeros_like(z_.params)),
      gradient_sum_(zeros_like(z_.params)),
      weights_(z_, options.exchange, ranks_),
      controls_({c_, TensorDict()}, options.exchange, ranks_),
      whole_(controls_.shards(), c_node_, sparsity::Supports()) {
  at::NoGradGuard no_grad;
  start_equal(replica.weights, *ranks.world);
  copy(z_.params, replica.weights.params);
  copy(z_.buffers, replica.weights.buffers);
}

/// gradient <- gradient + c - c_node, after it was added up as it is.
void Scaffold::before_update(Replica& replica) {
  at::NoGradGuard no_grad;
  if (has_exchanged_) forget_gradients();
  const double rate = local_.learning_rate(++step_);
  rate_sum_ += rate;
  for (auto& theta : replica.weights.params) {
    at::Tensor& gradient = theta.value().mutable_grad();
    if (!gradient.defined()) continue;
    gradient_sum_[theta.key()].add_(gradient, rate);
    gradient.add_(correction_[theta.key()]);
  }
}

void Scaffold::forget_gradients() {
  for (auto& sum : gradient_sum_) sum.value().zero_();
  rate_sum_ = 0;
  has_exchanged_ = false;
}

Exchange Scaffold::after_update(Replica& replica, int64_t step) {
  if (!ends_interval(step, local_.steps, local_.total_steps)) return {};
  at::NoGradGuard no_grad;
  ++k_;
  step_ = step;
  has_exchanged_ = true;
  clock_.restart();
  weights_.mean_over_ranks(replica.weights, z_.params, clock_);
  update_controls();
  restart(replica);
  clock_.end("dual");
  Exchange exchange{.exchanged = true, .index = k_};
  exchange.phases = clock_.phases();
  return exchange;
}

/// c_node <- the mean gradient of the node's ranks; c <- the mean of that over nodes.
void Scaffold::update_controls() {
  for (auto& control : controls_.tensors()) {
    control.value().copy_(gradient_sum_[control.key()]);
    if (rate_sum_ > 0) control.value().div_(rate_sum_);  // else it made no step, and counts for nothing
  }
  controls_.sum_in_node(false);
  TensorDict rows = controls_.rows();
  for (auto& row : rows) row.value().div_(ranks_.layout().ranks_here());
  controls_.share_in_node(whole_, c_node_);
  clock_.end("intra", static_cast<size_t>(controls_.nbytes()));
  controls_.mean_over_nodes(c_, clock_);
  // c_node is made anew in every exchange, so that c_node - c has what messages have left out.
  controls_.forget_left_out([](const std::string&) { return true; });
  copy(c_, controls_.tensors());
  if (rate_sum_ == 0) copy(c_node_, c_);  // it has no gradient of its own yet, and goes the way of all
  set_correction();
}

void Scaffold::set_correction() {
  for (auto& correction : correction_) {
    at::sub_out(correction.value(), c_[correction.key()], c_node_[correction.key()]);
  }
}

/// z <- the mean; theta starts anew from it.
void Scaffold::restart(Replica& replica) {
  for (auto& z : z_.params) {
    z.value().copy_(weights_.tensors()[z.key()]);
    replica.weights.params[z.key()].copy_(z.value());
  }
  for (auto& buffer : replica.weights.buffers) {
    at::Tensor& z = z_.buffers[buffer.key()];
    if (weights_.holds(buffer.key())) buffer.value().copy_(weights_.tensors()[buffer.key()]);
    z.copy_(buffer.value());
  }
}

void Scaffold::cut(const sparsity::Cut& cut, Replica&) {
  at::NoGradGuard no_grad;
  sparsity::apply_cut(z_, cut);
  for (TensorDict* tensors : {&c_, &c_node_, &correction_, &gradient_sum_}) sparsity::apply_cut(*tensors, cut);
  weights_.cut(cut, z_, sparsity::Supports());
  controls_.cut(cut, {c_, TensorDict()}, sparsity::Supports());
  whole_ = ShardedCompaction(controls_.shards(), c_node_, sparsity::Supports());
}

State Scaffold::state() const {
  State state;
  store(state.global, State::kZ, z_.params);
  store(state.global, State::kZ, z_.buffers);
  store(state.global, State::kC, c_);
  store(state.node, State::kCNode, c_node_);
  state.global.insert("progress", at::tensor({k_, step_}, at::kLong));
  weights_.save(state);
  if (local_.exchanges_before > 0) {
    weights_.save_shards(state);
    controls_.save_shards(state, "controls/");
  }
  return state;
}

void Scaffold::load(const State& state, const sparsity::Cut* cut_before, Replica& replica) {
  if (cut_before != nullptr) cut(*cut_before, replica);
  if (local_.exchanges_before > 0) {
    weights_.load_shards(state);
    controls_.load_shards(state, "controls/");
    whole_ = ShardedCompaction(controls_.shards(), c_node_, sparsity::Supports());
  }
  go_back(state);
}

void Scaffold::go_back(const State& state) {
  at::NoGradGuard no_grad;
  const auto [k, step] = saved_numbers<int64_t, 2>(state.global, "progress");
  k_ = k;
  step_ = step;
  restore(z_.params, state.global, State::kZ);
  restore(z_.buffers, state.global, State::kZ);
  restore(c_, state.global, State::kC);
  restore(c_node_, state.node, State::kCNode);
  set_correction();
  weights_.load(state);
  controls_.forget_left_out([](const std::string&) { return true; });  // of an exchange that did not come to its end
}

}  // namespace

std::unique_ptr<Strategy> make_scaffold(Replica& replica, comm::Hierarchy& ranks, const ScaffoldOptions& options) {
  expect_usable(replica.weights.params, options.exchange.payload);
  if (ranks.layout.world_size() > ranks.layout.nodes()) expect_rows(replica.weights.params);
  return std::make_unique<Scaffold>(replica, ranks, options);
}

}  // namespace prunex::strategies
