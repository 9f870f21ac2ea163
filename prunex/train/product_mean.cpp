#include "prunex/train/product_mean.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

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
  strategies::store(state, kEma, mean_);
}

void ProductMean::load(const TensorDict& state, const TensorDict& params) {
  at::NoGradGuard no_grad;
  const bool has_mean =
      std::any_of(state.begin(), state.end(), [](const auto& item) { return item.key().starts_with(kEma); });
  if (!has_mean) return;
  mean_ = strategies::zeros_like(params);
  strategies::restore(mean_, state, kEma);
}

}  // namespace prunex::train
