#include "cut_check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "prunex/channels/analysis.h"

namespace prunex::channels {
namespace {

constexpr uint64_t kSeed = 7;

sparsity::Masks choose(const std::vector<sparsity::Group>& groups, Keep keep, at::Generator& generator) {
  sparsity::Masks masks;
  for (const sparsity::Group& group : groups) {
    const int64_t kept = keep == Keep::kOne ? 1 : (group.size + 1) / 2;
    const at::Tensor order = at::randperm(group.size, generator, at::kLong);
    masks.insert(group.name, at::zeros({group.size}, at::kBool).index_fill_(0, order.slice(0, 0, kept), true));
  }
  return masks;
}

Weights clone(const Weights& weights, at::ScalarType dtype) {
  Weights copy;
  const auto convert = [&](const at::Tensor& tensor) {
    return tensor.detach().to(tensor.is_floating_point() ? dtype : tensor.scalar_type()).clone();
  };
  for (const auto& item : weights.params) copy.params.insert(item.key(), convert(item.value()));
  for (const auto& item : weights.buffers) copy.buffers.insert(item.key(), convert(item.value()));
  return copy;
}

void randomize_norms(Weights& weights, at::Generator& generator) {
  for (auto& item : weights.buffers) {
    if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.5, generator);
    if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2, generator);
  }
  for (auto& item : weights.params) {
    if (item.value().dim() == 1) item.value().uniform_(0.2, 1, generator);
  }
}

/// Layers read nothing of the removed units.
void mask_columns(Weights& weights, const sparsity::Cut& cut) {
  for (auto& item : weights.params) {
    const sparsity::TensorCut& part = cut.tensors.at(item.key());
    const auto kept = part.kept.find(1);
    if (kept == part.kept.end()) continue;
    at::Tensor factors = at::zeros({item.value().size(1)}, item.value().options());
    factors.index_fill_(0, at::tensor(kept->second, at::kLong), 1);
    std::vector<int64_t> shape(item.value().dim(), 1);
    shape[1] = -1;
    item.value().mul_(factors.view(shape));
  }
}

at::Tensor run(const program::Program& program, Weights& weights, const at::Tensor& images) {
  return program.run({images}, weights, program::Mode::kEval)[0];
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace

program::Model classify(program::Builder& net, program::ValueId features) {
  const program::ValueId pooled = net.flatten(net.adaptive_avg_pool2d(features, {1, 1}));
  return std::move(net).finish(net.linear("fc", pooled, {.out = 3}));
}

CutCheck check_cut(const program::Model& model, Keep keep, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  Weights whole = clone(model.weights, images.scalar_type());
  randomize_norms(whole, generator);
  const auto groups = Analysis(model.program.graph()).removable();
  sparsity::Cut cut = sparsity::make_cut(groups, choose(groups, keep, generator), sparsity::shapes_of(whole));
  program::Model small{cut_program(model.program, cut), clone(whole, images.scalar_type())};
  sparsity::apply_cut(small.weights, cut);
  const at::Tensor unmasked = run(model.program, whole, images);
  mask_columns(whole, cut);
  const at::Tensor expected = run(model.program, whole, images);
  const at::Tensor actual = run(small.program, small.weights, images);
  return {difference(actual, expected), difference(unmasked, expected), std::move(cut), std::move(small)};
}

double cut_error(const program::Model& model, const at::Tensor& images) {
  return std::max(check_cut(model, Keep::kHalf, images).error, check_cut(model, Keep::kOne, images).error);
}

}  // namespace prunex::channels
