#include "cut_check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <map>

namespace prunex::prune {
namespace {

using Removed = std::map<std::pair<std::string, int64_t>, std::vector<int64_t>>;  // (tensor, axis) -> positions

/// A random half of the units of every prunable group, rounded up.
Removed choose(const std::vector<DependencyGroup>& groups, at::Generator& generator) {
  Removed removed;
  for (const DependencyGroup& group : groups) {
    if (!group.prunable) continue;
    const at::Tensor order = at::randperm(group.size, generator, at::kLong);
    for (int64_t i = 0; i < group.size / 2; ++i) {
      const int64_t unit = order[i].item<int64_t>();
      for (const sparsity::Slice& slice : group.slices) {
        auto& positions = removed[{slice.tensor, slice.axis}];
        const auto block = static_cast<int64_t>(slice.index.size()) / group.size;
        if (slice.index.empty()) positions.push_back(unit);
        for (int64_t p = 0; p < block; ++p) positions.push_back(slice.index[unit * block + p]);
      }
    }
  }
  return removed;
}

at::Tensor& find(Weights& weights, const std::string& name) {
  at::Tensor* parameter = weights.params.find(name);
  return parameter != nullptr ? *parameter : weights.buffers[name];
}

Weights clone(const Weights& weights) {
  Weights copy;
  for (const auto& item : weights.params) copy.params.insert(item.key(), item.value().detach().clone());
  for (const auto& item : weights.buffers) copy.buffers.insert(item.key(), item.value().clone());
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

/// The program with as many groups in its depthwise convolutions as their cut weights have.
program::Program narrow(const program::Program& program, Weights& small) {
  program::Graph graph = program.graph();
  for (program::Node& node : graph.nodes) {
    for (program::Argument& argument : node.arguments) {
      if (node.target != "aten::conv2d" || argument.name != "groups") continue;
      const program::Value& weight = graph.values[node.find("weight")->values[0]];
      if (argument.literal.toInt() == 1 || weight.shape[1].factor != 1) continue;
      argument.literal = argument.literal.toInt() * find(small, weight.weight).size(0) / weight.shape[0].factor;
    }
  }
  return program::Program(std::move(graph));
}

at::Tensor run(const program::Program& program, Weights& weights, const at::Tensor& images) {
  return program.run({images}, weights, program::Mode::kEval)[0];
}

}  // namespace

double cut_error(program::Model& model, const std::vector<DependencyGroup>& groups, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  Weights masked = clone(model.weights);
  randomize_norms(masked, generator);
  Weights small = clone(masked);
  for (const auto& [place, positions] : choose(groups, generator)) {
    const auto& [name, axis] = place;
    const at::Tensor removed = at::tensor(positions, at::kLong);
    at::Tensor& whole = find(masked, name);
    const at::Tensor kept = at::ones({whole.size(axis)}, at::kBool).index_fill_(0, removed, false).nonzero().flatten();
    at::Tensor& part = find(small, name);
    part = part.index_select(axis, kept);
    if (axis == 1) whole.index_fill_(1, removed, 0);
  }
  const at::Tensor expected = run(model.program, masked, images);
  const at::Tensor actual = run(narrow(model.program, small), small, images);
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace prunex::prune
