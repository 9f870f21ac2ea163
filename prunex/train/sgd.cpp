// The update of a local step: loops on the CPU, operations on all parameters at once elsewhere.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <vector>

#include "prunex/strategies/dictionaries.h"
#include "prunex/train/local_step.h"

namespace prunex::train {
namespace {

/// One parameter's share of the local terms; null pointers where there is none.
struct Terms {
  const at::Tensor* anchor = nullptr;
  const at::Tensor* mask = nullptr;
  double rho1 = 0;
  size_t place = 0;  // of the anchor
};

Terms terms_of(const strategies::LocalTerms& terms, const std::string& name, size_t& next) {
  Terms found;
  // anchors stand in the order of the parameters, so one pass over both finds them without a search
  if (next < terms.anchor.size() && terms.anchor.keys()[next] == name) {
    found.anchor = &terms.anchor[next].value();
    found.place = next;
    found.rho1 = terms.rho1[next++];
  }
  found.mask = terms.masks.find(name);
  return found;
}

void check_all_used(const strategies::LocalTerms& terms, size_t used) {
  TORCH_CHECK(used == terms.anchor.size(), "[train] the anchor of '", terms.anchor.keys()[used],
              "' belongs to no parameter, or anchors are not in the order of the parameters");
}

/// Strides of axes of one entry say nothing.
bool lies_like(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t axis = 0; axis < a.dim(); ++axis) {
    if (a.size(axis) != 1 && a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

/// The gradient in the memory layout of its parameter.
at::Tensor gradient_like(const at::Tensor& theta) {
  const at::Tensor& gradient = theta.grad();
  if (gradient.strides() == theta.strides()) return gradient;
  if (lies_like(gradient, theta)) return gradient.as_strided(theta.sizes(), theta.strides());
  return at::empty_like(theta.detach()).copy_(gradient);
}

template <class T>
const T* pointer(const at::Tensor* tensor, const at::Tensor& like) {
  if (tensor == nullptr) return nullptr;
  TORCH_CHECK(tensor->strides() == like.strides(), "[train] a local term does not have its parameter's memory layout");
  return tensor->const_data_ptr<T>();
}

template <class T>
void update(const at::Tensor& theta_tensor, at::Tensor& momentum, const Terms& terms, const SgdOptions& options) {
  const at::Tensor gradient = gradient_like(theta_tensor);
  T* theta = theta_tensor.detach().data_ptr<T>();
  T* v = momentum.data_ptr<T>();
  const T* grad = gradient.const_data_ptr<T>();
  const T* anchor = pointer<T>(terms.anchor, theta_tensor);
  const T* mask = pointer<T>(terms.mask, theta_tensor);
  const T decay = static_cast<T>(options.weight_decay), mu = static_cast<T>(options.momentum);
  const T rate = static_cast<T>(options.learning_rate), rho = static_cast<T>(terms.rho1);
  const int64_t n = theta_tensor.numel();
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] + decay * theta[i];
    if (anchor != nullptr) g += rho * (theta[i] - anchor[i]);
    v[i] = mu * v[i] + g;
    theta[i] -= rate * v[i];
  }
  if (mask == nullptr) return;
  for (int64_t i = 0; i < n; ++i) {
    v[i] *= mask[i];
    theta[i] *= mask[i];
  }
}

/// Parameters of one type whose memory is not ours to walk through, for operations on all of them at once.
struct OnDevice {
  std::vector<at::Tensor> theta, momentum, gradient;
  std::vector<at::Tensor> anchor, mask;
  std::vector<size_t> rho1;            // places of the anchors' own
  std::vector<size_t> pulled, masked;  // places of those that have an anchor, a mask

  void add(const at::Tensor& parameter, const at::Tensor& its_momentum, const Terms& terms) {
    if (terms.anchor != nullptr) {
      pulled.push_back(theta.size());
      anchor.push_back(*terms.anchor);
      rho1.push_back(terms.place);
    }
    if (terms.mask != nullptr) {
      masked.push_back(theta.size());
      mask.push_back(*terms.mask);
    }
    theta.push_back(parameter.detach());
    momentum.push_back(its_momentum);
    gradient.push_back(gradient_like(parameter));
  }
};

std::vector<at::Tensor> at_places(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& places) {
  std::vector<at::Tensor> found;
  for (const size_t place : places) found.push_back(tensors[place]);
  return found;
}

/// update()'s numbers: each product is rounded before it is added, where _fused_sgd_ does both at once.
void update(const OnDevice& all, const SgdOptions& options, const StepNumbers& numbers) {
  const auto type = all.theta.front().scalar_type();
  const auto g = at::_foreach_mul(all.theta, options.weight_decay);
  at::_foreach_add_(g, all.gradient);
  if (!all.pulled.empty()) {
    const auto pull = at::_foreach_sub(at_places(all.theta, all.pulled), all.anchor);
    at::_foreach_mul_(pull, at_places(numbers.rho1.to(type).unbind(), all.rho1));
    at::_foreach_add_(at_places(g, all.pulled), pull);
  }
  at::_foreach_mul_(all.momentum, options.momentum);
  at::_foreach_add_(all.momentum, g);
  at::_foreach_sub_(all.theta, at::_foreach_mul(all.momentum, numbers.rate.to(type)));
  if (all.masked.empty()) return;
  at::_foreach_mul_(at_places(all.momentum, all.masked), all.mask);
  at::_foreach_mul_(at_places(all.theta, all.masked), all.mask);
}

/// Releases the gradients of what it steps, and returns what lies elsewhere, by type.
std::map<at::ScalarType, OnDevice> step_here(Replica& replica, const strategies::LocalTerms& terms,
                                             const SgdOptions& options) {
  size_t next_anchor = 0;
  std::map<at::ScalarType, OnDevice> elsewhere;
  for (size_t p = 0; p < replica.weights.params.size(); ++p) {
    auto& item = replica.weights.params[p];
    const Terms own = terms_of(terms, item.key(), next_anchor);
    if (!item.value().grad().defined()) continue;
    at::Tensor& momentum = replica.momentum[p].value();
    TORCH_CHECK(momentum.strides() == item.value().strides(), "[train] momentum of '", item.key(),
                "' does not have its parameter's memory layout");
    if (item.value().is_cpu()) {
      AT_DISPATCH_FLOATING_TYPES(item.value().scalar_type(), "sgd_step",
                                 [&] { update<scalar_t>(item.value(), momentum, own, options); });
    } else {
      elsewhere[item.value().scalar_type()].add(item.value(), momentum, own);
    }
    item.value().mutable_grad().reset();
  }
  check_all_used(terms, next_anchor);
  return elsewhere;
}

}  // namespace

StepNumbers numbers_on(const c10::Device& device, const strategies::LocalTerms& terms, const SgdOptions& options) {
  const auto like = at::TensorOptions().dtype(at::kDouble);
  StepNumbers numbers{at::full({}, options.learning_rate, like.device(device)), {}};
  if (!terms.rho1.empty()) numbers.rho1 = on_device(at::tensor(terms.rho1, like), device);
  return numbers;
}

void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const SgdOptions& options,
              const StepNumbers* numbers) {
  at::NoGradGuard no_grad;
  const auto elsewhere = step_here(replica, terms, options);
  if (elsewhere.empty()) return;
  const StepNumbers own = numbers == nullptr ? numbers_on(device_of(replica.weights), terms, options) : *numbers;
  for (const auto& [type, all] : elsewhere) update(all, options, own);
}

void add_local_terms(Weights& weights, const strategies::LocalTerms& terms) {
  at::NoGradGuard no_grad;
  size_t next_anchor = 0;
  for (auto& item : weights.params) {
    const Terms own = terms_of(terms, item.key(), next_anchor);
    at::Tensor& gradient = item.value().mutable_grad();
    if (!gradient.defined()) continue;
    if (own.anchor != nullptr) gradient.add_(item.value() - *own.anchor, own.rho1);
    if (own.mask != nullptr) gradient.mul_(*own.mask);
  }
  check_all_used(terms, next_anchor);
}

TensorDict zero_momentum(const TensorDict& params) {
  return strategies::zeros_like(strategies::detached(params));
}

}  // namespace prunex::train
