#include "prunex/strategies/gradients/gradient_strategy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/exchange/rail_exchange.h"

namespace prunex::strategies {
namespace {

class TopK final : public GradientStrategy {
 public:
  TopK(Replica& replica, comm::Hierarchy& ranks, const TopKOptions& options)
      : GradientStrategy(replica, ranks, options.reporting), ranks_(ranks), exchange_(ranks), options_(options) {
    for (const auto& theta : replica.weights.params) {
      const bool is_vector = theta.value().dim() < 2;
      if (!is_vector) rest_.insert(theta.key(), at::zeros_like(theta.value().detach()));
      if (options.dgc)
        (is_vector ? common_velocity_ : velocity_).insert(theta.key(), at::zeros_like(theta.value().detach()));
    }
  }

  State state() const override {
    State state = GradientStrategy::state();
    store(state.rank, "rest/", rest_);
    store(state.rank, "velocity/", velocity_);
    store(state.global, "velocity/", common_velocity_);
    state.global.insert("step", at::tensor({step_}, at::kLong));
    return state;
  }

 private:
  void restore_own(const State& state) override {
    restore(rest_, state.rank, "rest/");
    restore(velocity_, state.rank, "velocity/");
    restore(common_velocity_, state.global, "velocity/");
    step_ = saved_numbers<int64_t, 1>(state.global, "step")[0];
  }

  void cut_state(const sparsity::Cut& cut, Replica&) override {
    sparsity::apply_cut(rest_, cut);
    sparsity::apply_cut(velocity_, cut);
    sparsity::apply_cut(common_velocity_, cut);
  }

  void average_gradients(TensorDict& params) override {
    ++step_;
    TensorDict grads;
    for (auto& theta : params) {
      at::Tensor& grad = theta.value().mutable_grad();
      if (!grad.defined()) grad = at::zeros_like(theta.value());
      at::Tensor like_theta = at::empty_like(theta.value().detach());
      grad = like_theta.copy_(grad);
      grads.insert(theta.key(), grad);
    }
    if (options_.dgc) clip(grads);
    average_vectors(grads);
    if (options_.dgc) add_momentum(grads);
    average_largest(grads);
  }

  void clip(TensorDict& grads) const {
    if (options_.dgc_options.clip == 0) return;
    at::Tensor squares = at::zeros({}, grads.front().value().options().dtype(at::kDouble));
    for (const auto& grad : grads) squares.add_(grad.value().square().sum());
    const double most = options_.dgc_options.clip / std::sqrt(ranks_.layout.world_size());
    const at::Tensor factor = at::full_like(squares, most).div_(squares.sqrt()).clamp_max_(1);
    for (auto& grad : grads) grad.value().mul_(factor);
  }

  void average_vectors(const TensorDict& grads) {
    std::vector<at::Tensor> vectors;
    for (const auto& grad : grads) {
      if (grad.value().dim() < 2) vectors.push_back(grad.value());
    }
    exchange_.mean_over_ranks(vectors);
  }

  /// Momentum correction: what waits to be sent has gathered momentum. Vectors have it, too, since the optimizer has
  /// none.
  void add_momentum(TensorDict& grads) {
    for (TensorDict* velocities : {&velocity_, &common_velocity_}) {
      for (auto& velocity : *velocities) {
        velocity.value().mul_(options_.dgc_options.momentum).add_(grads[velocity.key()]);
        grads[velocity.key()].copy_(velocity.value());
      }
    }
  }

  int64_t count_of(const at::Tensor& tensor) const {
    const double share = density_at(options_, step_) * static_cast<double>(tensor.numel());
    return std::min(tensor.numel(), std::max<int64_t>(1, std::llround(std::ceil(share))));
  }

  /// grads <- mean over ranks of their largest entries, of what they have and what was left of earlier steps.
  void average_largest(TensorDict& grads) {
    int64_t entries = 0;
    for (const auto& rest : rest_) entries += count_of(rest.value());
    const auto like_message = grads.front().value().options().dtype(at::kInt);
    at::Tensor message = at::empty({2, entries}, like_message);  // places; values, bit by bit
    int64_t begin = 0;
    for (auto& rest : rest_) {
      const int64_t count = count_of(rest.value());
      at::Tensor part = message.narrow(1, begin, count);
      take_largest(rest.key(), grads[rest.key()], part);
      begin += count;
    }
    const at::Tensor all = gather(message);
    begin = 0;
    for (auto& rest : rest_) {
      const int64_t count = count_of(rest.value());
      add_up(all.narrow(2, begin, count), grads[rest.key()]);
      begin += count;
    }
  }

  void take_largest(const std::string& name, const at::Tensor& grad, at::Tensor& part) {
    at::Tensor waiting = in_memory_order(rest_[name]);
    waiting.add_(in_memory_order(grad));
    const at::Tensor places = std::get<1>(at::topk(waiting.abs(), part.size(1), 0, true, false));
    part[0].copy_(places);
    part[1].copy_(waiting.index_select(0, places).to(at::kFloat).view(at::kInt));
    if (options_.error_feedback) {
      waiting.index_fill_(0, places, 0);
    } else {
      waiting.zero_();
    }
    if (options_.dgc) in_memory_order(velocity_[name]).index_fill_(0, places, 0);
  }

  /// [ranks, 2, entries]: over the rail, then over the node, so that every entry crosses each link once.
  at::Tensor gather(const at::Tensor& message) {
    const auto& layout = ranks_.layout;
    at::Tensor all = at::empty({layout.world_size(), 2, message.size(1)}, message.options());
    if (!layout.is_even()) {
      ranks_.flat->all_gather(all, message);
      return all;
    }
    at::Tensor rail = at::empty({layout.nodes(), 2, message.size(1)}, message.options());
    ranks_.rail->all_gather(rail, message);
    at::Tensor by_rail = all.view({layout.ranks_here(), layout.nodes(), 2, message.size(1)});
    ranks_.node->all_gather(by_rail, rail);
    return all;
  }

  void add_up(const at::Tensor& all, at::Tensor& grad) const {
    at::Tensor sum = in_memory_order(grad).zero_();
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      sum.index_add_(0, all[rank][0], all[rank][1].contiguous().view(at::kFloat).to(sum.scalar_type()));
    }
    sum.div_(all.size(0));
  }

  comm::Hierarchy& ranks_;
  RailExchange exchange_;
  const TopKOptions options_;
  int64_t step_ = 0;
  TensorDict rest_;             // of matrices and filter banks: not sent yet
  TensorDict velocity_;         // of DGC, of what `rest_` has
  TensorDict common_velocity_;  // of vectors, whose gradients are means before: the same on all ranks
};

}  // namespace

void check(const TopKOptions& options) {
  if (!(options.density > 0 && options.density <= 1)) {
    throw std::invalid_argument(fmt::format("`density`: got {}, wanted a share in (0, 1]", options.density));
  }
  if (options.dgc && !options.error_feedback) throw std::invalid_argument("`dgc`: needs error feedback");
  if (!(options.dgc_options.clip >= 0)) {
    throw std::invalid_argument(fmt::format("`dgc_clip`: got {}, wanted 0 or more", options.dgc_options.clip));
  }
  const double momentum = options.dgc_options.momentum;
  if (!(momentum >= 0 && momentum < 1)) {
    throw std::invalid_argument(fmt::format("`momentum`: got {}, wanted one in [0, 1)", momentum));
  }
}

double density_at(const TopKOptions& options, int64_t step) {
  const int64_t warmup = options.dgc ? options.dgc_options.warmup_steps : 0;
  if (step > warmup || options.density >= kFirstDensity) return options.density;
  const double progress = static_cast<double>(step - 1) / static_cast<double>(warmup);
  return kFirstDensity * std::pow(options.density / kFirstDensity, progress);
}

std::unique_ptr<Strategy> make_top_k(Replica& replica, comm::Hierarchy& ranks, const TopKOptions& options) {
  check(options);
  return std::make_unique<TopK>(replica, ranks, options);
}

}  // namespace prunex::strategies
