#include "prunex/train/product_mean.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>

#include "prunex/strategies/dictionaries.h"

namespace prunex::train {
namespace {

const std::string kEma = "ema/";  // in checkpoints

}  // namespace

ProductMean ProductMean::copy() const {
  ProductMean copy(decay_);
  copy.mean_ = strategies::clones(mean_);
  return copy;
}

void ProductMean::add(const Weights& product, int64_t steps) {
  if (decay_ == 0) return;
  at::NoGradGuard no_grad;
  if (mean_.is_empty()) {
    mean_ = strategies::clones(product.params);
    return;
  }
  const double share = 1 - std::pow(decay_, static_cast<double>(steps));
  for (auto& item : mean_) item.value().lerp_(product.params[item.key()], share);
}

void ProductMean::cut(const sparsity::Cut& cut) {
  sparsity::apply_cut(mean_, cut);
}

Weights ProductMean::of(const Weights& product) const {
  return mean_.is_empty() ? product : Weights{mean_, product.buffers};
}

void ProductMean::save(TensorDict& state) const {
  for (const auto& item : mean_) state.insert(kEma + item.key(), item.value());
}

void ProductMean::load(const TensorDict& state, const TensorDict& params) {
  at::NoGradGuard no_grad;
  for (const auto& item : params) {
    const std::string name = kEma + item.key();
    const at::Tensor* saved = state.find(name);
    if (saved == nullptr) continue;
    if (saved->sizes() != item.value().sizes()) {
      throw std::invalid_argument(fmt::format("tensor {} is [{}], wanted [{}]", name, fmt::join(saved->sizes(), ", "),
                                              fmt::join(item.value().sizes(), ", ")));
    }
    mean_.insert(item.key(), at::empty_like(item.value().detach()).copy_(*saved));
  }
}

}  // namespace prunex::train
