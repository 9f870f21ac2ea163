#include "prunex/train/sgd.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

namespace prunex::train {
namespace {

/// One parameter's share of the local terms; null pointers where there is none.
struct Terms {
  const at::Tensor* anchor = nullptr;
  const at::Tensor* mask = nullptr;
  double rho1 = 0;
};

Terms terms_of(const strategies::LocalTerms& terms, const std::string& name, size_t& next) {
  Terms found;
  // anchors stand in the order of the parameters, so one pass over both finds them without a search
  if (next < terms.anchor.size() && terms.anchor.keys()[next] == name) {
    found.anchor = &terms.anchor[next].value();
    found.rho1 = terms.rho1[next++];
  }
  found.mask = terms.masks.find(name);
  return found;
}

void check_all_used(const strategies::LocalTerms& terms, size_t used) {
  TORCH_CHECK(used == terms.anchor.size(), "[train] the anchor of '", terms.anchor.keys()[used],
              "' belongs to no parameter, or anchors are not in the order of the parameters");
}

/// The gradient in the memory layout of its parameter.
at::Tensor gradient_like(const at::Tensor& theta) {
  const at::Tensor& gradient = theta.grad();
  return gradient.strides() == theta.strides() ? gradient : at::empty_like(theta.detach()).copy_(gradient);
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

/// The same where memory is not ours to walk through.
void update_by_tensors(const at::Tensor& parameter, at::Tensor& momentum, const Terms& terms,
                       const SgdOptions& options) {
  at::Tensor theta = parameter.detach();
  momentum.mul_(options.momentum).add_(parameter.grad()).add_(theta, options.weight_decay);
  if (terms.anchor != nullptr) momentum.add_(theta - *terms.anchor, terms.rho1);
  theta.sub_(momentum, options.learning_rate);
  if (terms.mask == nullptr) return;
  momentum.mul_(*terms.mask);
  theta.mul_(*terms.mask);
}

}  // namespace

void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const SgdOptions& options) {
  at::NoGradGuard no_grad;
  size_t next_anchor = 0;
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
      update_by_tensors(item.value(), momentum, own, options);
    }
    item.value().mutable_grad().reset();
  }
  check_all_used(terms, next_anchor);
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
  TensorDict momentum;
  for (const auto& theta : params) momentum.insert(theta.key(), at::zeros_like(theta.value().detach()));
  return momentum;
}

}  // namespace prunex::train
