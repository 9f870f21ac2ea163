// AdamW, LAMB and Muon, by operations of ATen everywhere. What changes from step to step is read from tensors.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "prunex/train/optimizer/gathered.h"

namespace prunex::train {
namespace {

// torch.optim.Muon's, which are those of https://kellerjordan.github.io/posts/muon.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
constexpr double kLeastNorm = 1e-7;
// What makes its steps as long as AdamW's usually are: arXiv 2502.16982.
constexpr double kRmsOfAdamW = 0.2;

/// Singular values near 1: a quintic Newton-Schulz iteration in bf16.
at::Tensor orthogonalized(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x.div(x.norm().clamp_min(kLeastNorm));
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

/// The longer side of what a mask leaves of a flattened filter.
at::Tensor longer_side(const at::Tensor& mask) {
  const at::Tensor flat = mask.flatten(1).to(at::kDouble);
  return at::maximum(flat.amax(1).sum(), flat.amax(0).sum());
}

}  // namespace

void adamw_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers) {
  const std::vector<at::Tensor> steps(all.theta.size(), numbers.step.to(at::kFloat));
  const auto& theta = all.theta;
  if (!theta.front().is_cpu()) {  // GPUs take the rate in fp32
    at::_fused_adamw_(theta, all.gradient, all.states[0], all.states[1], {}, steps, numbers.rate.to(at::kFloat),
                      options.beta1, options.beta2, all.weight_decay, options.eps, false, false);
    return;
  }
  const bool wide = theta.front().scalar_type() == at::kDouble;
  const double rate = wide ? options.learning_rate : static_cast<float>(options.learning_rate);
  at::_fused_adamw_(theta, all.gradient, all.states[0], all.states[1], {}, steps, rate, options.beta1, options.beta2,
                    all.weight_decay, options.eps, false, false);
}

void lamb_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers) {
  const auto type = all.theta.front().scalar_type();
  const auto& m = all.states[0];
  const auto& v = all.states[1];
  const auto correction = [&](double beta) { return (1 - at::pow(beta, numbers.step)).to(type); };
  at::_foreach_mul_(m, options.beta1);
  at::_foreach_add_(m, all.gradient, 1 - options.beta1);
  at::_foreach_mul_(v, options.beta2);
  at::_foreach_addcmul_(v, all.gradient, all.gradient, 1 - options.beta2);
  auto root = at::_foreach_div(v, correction(options.beta2));
  at::_foreach_sqrt_(root);
  at::_foreach_add_(root, options.eps);
  auto u = at::_foreach_div(m, correction(options.beta1));
  at::_foreach_div_(u, root);
  at::_foreach_add_(u, all.theta, all.weight_decay);
  const at::Tensor weights = at::stack(at::_foreach_norm(all.theta)), updates = at::stack(at::_foreach_norm(u));
  const at::Tensor trust = at::where(weights.gt(0).logical_and(updates.gt(0)), weights / updates, 1.0).to(type);
  at::_foreach_mul_(u, trust.mul(numbers.rate.to(type)).unbind());
  at::_foreach_sub_(all.theta, u);
}

void muon_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers) {
  const auto type = all.theta.front().scalar_type();
  const auto& v = all.states.front();
  const at::Tensor kept = (1 - numbers.rate * all.weight_decay).to(type);
  for (size_t i = 0, next_mask = 0; i < all.theta.size(); ++i) {
    const at::Tensor& theta = all.theta[i];
    const bool masked = next_mask < all.masked.size() && all.masked[next_mask] == i;
    at::Tensor side;
    if (masked) side = longer_side(all.mask[next_mask++]);
    v[i].lerp_(all.gradient[i], 1 - options.momentum);
    const at::Tensor step = orthogonalized(all.gradient[i].lerp(v[i], options.momentum).flatten(1));
    const auto longer = static_cast<double>(std::max(theta.size(0), theta.numel() / theta.size(0)));
    const at::Tensor rate =
        masked ? numbers.rate * kRmsOfAdamW * side.sqrt() : numbers.rate * (kRmsOfAdamW * std::sqrt(longer));
    theta.mul_(kept);
    theta.sub_(step.reshape(theta.sizes()).to(type).mul(rate.to(type)));
  }
}

}  // namespace prunex::train
