// SGD: loops on the CPU, operations on all parameters at once elsewhere.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "prunex/train/device.h"
#include "prunex/train/optimizer/gathered.h"

namespace prunex::train {
namespace {

template <class T>
const T* pointer(const at::Tensor* tensor, const at::Tensor& like) {
  if (tensor == nullptr) return nullptr;
  TORCH_CHECK(tensor->sizes() == like.sizes() && tensor->strides() == like.strides(),
              "[train] a local term does not have its parameter's memory layout");
  return tensor->const_data_ptr<T>();
}

template <class T>
void walk(const at::Tensor& theta_tensor, const at::Tensor& momentum, const Terms& terms,
          const OptimizerOptions& options) {
  const at::Tensor gradient = gradient_like(theta_tensor);
  T* theta = theta_tensor.detach().data_ptr<T>();
  T* v = momentum.data_ptr<T>();
  const T* grad = gradient.const_data_ptr<T>();
  const T* anchor = pointer<T>(terms.anchor, theta_tensor);
  const T* mask = pointer<T>(terms.mask, theta_tensor);
  const T decay = static_cast<T>(options.decay_of(theta_tensor)), mu = static_cast<T>(options.momentum);
  const T rate = static_cast<T>(options.learning_rate), rho = static_cast<T>(terms.rho1);
  const bool ahead = options.rule == Optimizer::kNesterov;
  const int64_t n = theta_tensor.numel();
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] + decay * theta[i];
    if (anchor != nullptr) g += rho * (theta[i] - anchor[i]);
    v[i] = mu * v[i] + g;
    theta[i] -= rate * (ahead ? g + mu * v[i] : v[i]);
  }
  if (mask == nullptr) return;
  for (int64_t i = 0; i < n; ++i) {
    v[i] *= mask[i];
    theta[i] *= mask[i];
  }
}

/// walk()'s numbers: each product is rounded before it is added, where _fused_sgd_ does both at once.
void move_by_sgd(const Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers) {
  auto g = at::_foreach_mul(all.theta, all.weight_decay);
  at::_foreach_add_(g, all.gradient);
  all.pull(g, numbers);
  const auto& v = all.states.front();
  at::_foreach_mul_(v, options.momentum);
  at::_foreach_add_(v, g);
  auto step = v;
  if (options.rule == Optimizer::kNesterov) {
    step = at::_foreach_mul(v, options.momentum);
    at::_foreach_add_(step, g);
  }
  at::_foreach_sub_(all.theta, at::_foreach_mul(step, numbers.rate.to(all.theta.front().scalar_type())));
  all.apply_masks();
}

}  // namespace

void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
              const StepNumbers* numbers) {
  const auto elsewhere = gather(
      replica, terms, options, [&](const at::Tensor& theta, const std::vector<at::Tensor>& states, const Terms& own) {
        if (!theta.is_cpu()) return false;
        AT_DISPATCH_FLOATING_TYPES(theta.scalar_type(), "sgd_step",
                                   [&] { walk<scalar_t>(theta, states.front(), own, options); });
        return true;
      });
  if (elsewhere.empty()) return;
  const StepNumbers own = numbers == nullptr ? numbers_of(replica, terms, options) : *numbers;
  for (const auto& [kind, all] : elsewhere) move_by_sgd(all, options, own);
}

}  // namespace prunex::train
