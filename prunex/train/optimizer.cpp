#include "prunex/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "prunex/strategies/dictionaries.h"
#include "prunex/train/device.h"
#include "prunex/train/optimizer/gathered.h"

namespace prunex::train {
namespace {

/// What Muon turns; its head, if there is one, is the last of these.
bool is_matrix(const at::Tensor& theta) {
  return theta.dim() >= 2;
}

bool has_two_moments(Optimizer rule) {
  return rule == Optimizer::kAdamW || rule == Optimizer::kLamb;
}

/// All parameters of one state are matrices of Muon's, or the rule is another one.
void move_by_rule(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers) {
  const bool turns = options.rule == Optimizer::kMuon && all.states.size() == 1;
  TORCH_CHECK(turns || all.states.size() == 2, "[train] the optimizer has ", all.states.size(), " states, wanted 2");
  all.approach_anchors(numbers);
  all.apply_masks(all.gradient);
  if (options.rule == Optimizer::kLamb) {
    lamb_update(all, options, numbers);
  } else if (turns) {
    muon_update(all, options, numbers);
  } else {
    adamw_update(all, options, numbers);
  }
  all.apply_masks();
}

}  // namespace

OptimizerState fresh_state(const TensorDict& params, Optimizer rule) {
  const TensorDict zeros = strategies::zeros_like(strategies::detached(params));
  OptimizerState state;
  if (!has_two_moments(rule) && rule != Optimizer::kMuon) {
    state.insert("momentum", zeros);
    return state;
  }
  TensorDict momentum, exp_avg, exp_avg_sq;
  std::string head;
  for (const auto& item : zeros) {
    if (is_matrix(item.value())) head = item.key();
  }
  for (const auto& item : zeros) {
    if (rule == Optimizer::kMuon && is_matrix(item.value()) && item.key() != head) {
      momentum.insert(item.key(), item.value());
    } else {
      exp_avg.insert(item.key(), item.value());
      exp_avg_sq.insert(item.key(), at::zeros_like(item.value()));
    }
  }
  if (rule == Optimizer::kMuon) state.insert("momentum", momentum);
  state.insert("exp_avg", exp_avg);
  state.insert("exp_avg_sq", exp_avg_sq);
  return state;
}

StepNumbers numbers_of(const Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options) {
  const c10::Device device = device_of(replica.weights);
  const auto like = at::TensorOptions().dtype(at::kDouble);
  StepNumbers numbers{.rate = at::full({}, options.learning_rate, like.device(device)),
                      .rho1 = {},
                      .step = at::full({}, static_cast<double>(replica.updates), like.device(device))};
  if (!terms.rho1.empty()) numbers.rho1 = on_device(at::tensor(terms.rho1, like), device);
  return numbers;
}

void clip_gradients(TensorDict& params, const TensorDict& masks, double most) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (auto& item : params) {
    at::Tensor& gradient = item.value().mutable_grad();
    if (!gradient.defined()) continue;
    gradient = gradient_like(item.value());
    if (const at::Tensor* mask = masks.find(item.key())) gradient.mul_(*mask);
    gradients.push_back(gradient);
  }
  if (gradients.empty()) return;
  auto norms = at::_foreach_norm(gradients);
  for (auto& norm : norms) norm = norm.to(norms.front().scalar_type());
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms));
  at::_foreach_mul_(gradients, total.add(1e-6).reciprocal_().mul_(most).clamp_max_(1));
}

void optimizer_step(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
                    const StepNumbers* numbers) {
  at::NoGradGuard no_grad;
  for (const auto& state : replica.optimizer) {
    const bool is_moment = state.key() != "momentum";
    TORCH_CHECK(options.rule == Optimizer::kMuon || is_moment == has_two_moments(options.rule),
                "[train] the optimizer has ", state.key(),
                ", which its rule does not: wanted fresh_state() of the rule");
  }
  if (numbers == nullptr) ++replica.updates;
  if (options.clip_norm > 0) clip_gradients(replica.weights.params, terms.masks, options.clip_norm);
  if (options.rule == Optimizer::kSgd || options.rule == Optimizer::kNesterov) {
    return sgd_step(replica, terms, options, numbers);
  }
  auto gathered = gather(replica, terms, options);
  if (gathered.empty()) return;
  const StepNumbers own = numbers == nullptr ? numbers_of(replica, terms, options) : *numbers;
  for (auto& [kind, all] : gathered) move_by_rule(all, options, own);
}

void add_local_terms(Weights& weights, const strategies::LocalTerms& terms,
                     const std::map<std::string, double>* rates) {
  at::NoGradGuard no_grad;
  TermsInOrder in_order(terms);
  const auto rate_of = [&](const std::string& name) {  // none of what is not trained
    const auto found = rates->find(name);
    return found == rates->end() ? 0 : found->second;
  };
  for (auto& item : weights.params) {
    const Terms own = in_order.of(item.key());
    at::Tensor& gradient = item.value().mutable_grad();
    if (!gradient.defined()) continue;
    if (own.anchor != nullptr) {
      const at::Tensor pull = item.value().detach() - *own.anchor;
      if (rates == nullptr) gradient.add_(pull, own.rho1);
      if (rates != nullptr) item.value().sub_(pull, own.rho1 * rate_of(item.key()));
    }
    if (own.mask != nullptr) gradient.mul_(*own.mask);
  }
  in_order.check_all_used();
}

}  // namespace prunex::train
