#include "prunex/train/local_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "prunex/strategies/dictionaries.h"

namespace prunex::train {
namespace {

/// Autocast of a device to bf16 while it lives. Leaving clears the cache of cast weights: they are about to change.
class Bf16Autocast {
 public:
  explicit Bf16Autocast(at::DeviceType device)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
  }
  ~Bf16Autocast() {
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, type_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  Bf16Autocast(const Bf16Autocast&) = delete;
  Bf16Autocast& operator=(const Bf16Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType type_;
};

/// In fp32 at least.
at::Tensor loss_of(const program::Program& program, Replica& replica, const data::Batch& batch) {
  const at::Tensor logits = program.run({batch.images}, replica.weights, program::Mode::kTrain).front();
  const bool reduced = at::isReducedFloatingType(logits.scalar_type());
  return at::cross_entropy_loss(reduced ? logits.to(at::kFloat) : logits, batch.labels);
}

at::Tensor loss_in_bf16(const program::Program& program, Replica& replica, const data::Batch& batch) {
  const Bf16Autocast autocast(batch.images.device().type());
  return loss_of(program, replica, batch);
}

}  // namespace

void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step) {
  const uint64_t stream = seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(stream + static_cast<uint64_t>(step));
}

at::Tensor compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch, bool bf16) {
  const at::Tensor loss = bf16 ? loss_in_bf16(program, replica, batch) : loss_of(program, replica, batch);
  loss.backward();
  return loss.detach();
}

void LossSum::check(double sum, const std::string& where) const {
  if (std::isfinite(sum)) return;
  throw std::runtime_error(
      fmt::format("the training loss is {} {}: try a lower `lr` (got {})", sum, where, learning_rate_));
}

void LossSum::add(const at::Tensor& loss, int64_t step) {
  if (loss.is_cpu()) check(loss.item<double>(), fmt::format("at step {}", step));
  if (!sum_.defined()) {
    sum_ = at::zeros({}, loss.options().dtype(at::kDouble));
    first_ = step;
  }
  sum_.add_(loss);
  last_ = step;
}

double LossSum::take() {
  if (!sum_.defined()) return 0;
  const auto sum = sum_.item<double>();
  sum_.reset();
  check(sum, fmt::format("in steps {} to {}", first_, last_));
  return sum;
}

bool has_bf16_arithmetic() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

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

/// Parameters whose memory is not ours to walk through, for operations on all of them at once.
struct OnDevice {
  std::vector<at::Tensor> theta, momentum, gradient;
  std::vector<at::Tensor> anchor, mask;
  std::vector<at::Scalar> rho1;
  std::vector<size_t> pulled, masked;  // places of those that have an anchor, a mask

  void add(const at::Tensor& parameter, const at::Tensor& its_momentum, const Terms& terms) {
    if (terms.anchor != nullptr) {
      pulled.push_back(theta.size());
      anchor.push_back(*terms.anchor);
      rho1.emplace_back(terms.rho1);
    }
    if (terms.mask != nullptr) {
      masked.push_back(theta.size());
      mask.push_back(*terms.mask);
    }
    theta.push_back(parameter.detach());
    momentum.push_back(its_momentum);
    gradient.push_back(parameter.grad());
  }
};

std::vector<at::Tensor> at_places(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& places) {
  std::vector<at::Tensor> found;
  for (const size_t place : places) found.push_back(tensors[place]);
  return found;
}

/// update()'s numbers: each product is rounded before it is added, where one operation could do both.
void update(const OnDevice& all, const SgdOptions& options) {
  if (all.theta.empty()) return;
  const auto g = at::_foreach_mul(all.theta, options.weight_decay);
  at::_foreach_add_(g, all.gradient);
  if (!all.pulled.empty()) {
    const auto pull = at::_foreach_sub(at_places(all.theta, all.pulled), all.anchor);
    at::_foreach_mul_(pull, all.rho1);
    at::_foreach_add_(at_places(g, all.pulled), pull);
  }
  at::_foreach_mul_(all.momentum, options.momentum);
  at::_foreach_add_(all.momentum, g);
  at::_foreach_sub_(all.theta, at::_foreach_mul(all.momentum, options.learning_rate));
  if (all.masked.empty()) return;
  at::_foreach_mul_(at_places(all.momentum, all.masked), all.mask);
  at::_foreach_mul_(at_places(all.theta, all.masked), all.mask);
}

}  // namespace

void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const SgdOptions& options) {
  at::NoGradGuard no_grad;
  size_t next_anchor = 0;
  OnDevice elsewhere;
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
      elsewhere.add(item.value(), momentum, own);
    }
    item.value().mutable_grad().reset();
  }
  update(elsewhere, options);
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
  return strategies::zeros_like(strategies::detached(params));
}

}  // namespace prunex::train
