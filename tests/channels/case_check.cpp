#include "tests/channels/case_check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "prunex/channels/analysis.h"
#include "tests/larger.h"

namespace prunex::channels {
namespace {

using program::Graph;
using program::Model;
using program::Node;
using program::Value;
using sparsity::Slice;

constexpr int64_t kWords = 7;

at::Tensor make_input(const Value& value) {
  const auto sizes = program::sizes_of(value.shape, 2);
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  if (value.dtype == at::kLong) return at::arange(count, at::kLong).remainder(kWords).reshape(sizes);
  return at::linspace(-1000, 1000, count, at::kDouble).sin().to(value.dtype).reshape(sizes);
}

/// Weight and axis where a layer reads its input.
std::set<std::pair<std::string, int64_t>> reading_axes(const Graph& graph) {
  std::set<std::pair<std::string, int64_t>> axes;
  const auto add = [&](program::ValueId value, int64_t axis) {
    const Value& weight = graph.values[value];
    if (weight.role == program::Role::kParameter) axes.emplace(graph.owner(weight.weight), axis);
  };
  for (const Node& node : graph.nodes) {
    const program::Argument* weight = node.find("weight");
    const program::Argument* params = node.find("params");
    const bool transposed = node.target.starts_with("aten::conv_transpose");
    if (transposed || node.target.starts_with("aten::conv") || node.target == "aten::linear") {
      add(weight->values[0], transposed ? 0 : 1);
    }
    for (size_t i = 0; params != nullptr && i < params->values.size(); ++i) {
      if (graph.values[params->values[i]].shape.size() == 2) add(params->values[i], 1);
    }
  }
  return axes;
}

std::vector<int64_t> positions(const Slice& slice, int64_t size, int64_t unit) {
  if (slice.index.empty()) return {unit};
  const auto block = static_cast<int64_t>(slice.index.size()) / size;
  return {slice.index.begin() + unit * block, slice.index.begin() + (unit + 1) * block};
}

void mask_unit(const at::Tensor& tensor, const Slice& slice, int64_t size, int64_t unit, bool copy) {
  const at::Tensor dead = at::tensor(positions(slice, size, unit), at::kLong);
  if (!copy) {
    tensor.index_fill_(slice.axis, dead, 0);
    return;
  }
  const at::Tensor twin = at::tensor(positions(slice, size, unit ^ 1), at::kLong);
  tensor.index_copy_(slice.axis, dead, tensor.index_select(slice.axis, twin));
}

void mask_slice(const at::Tensor& tensor, const Slice& slice, const at::Tensor& mask, bool copy) {
  for (int64_t unit = 0; unit < mask.numel(); ++unit) {
    if (!mask[unit].item<bool>()) mask_unit(tensor, slice, mask.numel(), unit, copy);
  }
}

}  // namespace

Model copy_of(const Model& model, std::optional<at::ScalarType> type) {
  Model copy = model;
  for (TensorDict* tensors : {&copy.weights.params, &copy.weights.buffers}) {
    for (auto& item : *tensors) {
      at::Tensor& tensor = item.value();
      const bool converts = type && tensor.is_floating_point();
      tensor = tensor.detach().to(converts ? *type : tensor.scalar_type()).clone();
    }
  }
  return copy;
}

void randomize_norms(Weights& weights, at::Generator& generator) {
  for (auto& item : weights.buffers) {
    if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.5, generator);
    if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2, generator);
  }
  for (auto& item : weights.params) {
    at::Tensor values = item.value().detach();
    if (values.dim() > 0 && values.numel() == values.size(0)) values.uniform_(0.2, 1, generator);
    if (values.count_nonzero().item<int64_t>() == 0) values.normal_(0, 0.1, generator);
  }
}

std::vector<at::Tensor> make_inputs(const Graph& graph) {
  std::vector<at::Tensor> inputs;
  for (program::ValueId input : graph.inputs) inputs.push_back(make_input(graph.values[input]));
  return inputs;
}

std::vector<at::Tensor> run(const Model& model, const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  Weights weights = model.weights;
  return model.program.run(inputs, weights, program::Mode::kEval);
}

sparsity::Masks half(const std::vector<sparsity::Group>& groups, Mask mask, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  sparsity::Masks masks;
  for (const sparsity::Group& group : groups) {
    at::Tensor alive = at::ones({group.size}, at::kBool);
    const at::Tensor dead =
        needs_twins(mask) ? at::arange(group.size / 2) * 2 + at::randint(2, {group.size / 2}, generator, at::kLong)
                          : at::randperm(group.size, generator, at::kLong).slice(0, 0, group.size / 2);
    masks.insert(group.name, alive.index_fill_(0, dead, false));
  }
  return masks;
}

Model masked(const Model& model, const Analysis& analysis, const sparsity::Masks& masks, Mask mask) {
  const at::NoGradGuard no_grad;
  Model whole = copy_of(model);
  const auto reads = reading_axes(model.program.graph());
  for (const DependencyGroup& group : analysis.groups()) {
    if (!group.prunable) continue;
    for (const Slice& slice : group.slices) {
      const bool read = reads.contains({slice.tensor, slice.axis});
      const WeightRole* role = analysis.role(slice.tensor);
      const bool copied =
          mask == Mask::kColumnTwins ? role != nullptr && role->reads(slice.axis) : mask == Mask::kTwins && !read;
      const bool copy = copied && !group.inexact.empty();
      at::Tensor* tensor = whole.weights.params.find(slice.tensor);
      if (tensor == nullptr && copy) tensor = whole.weights.buffers.find(slice.tensor);
      if (tensor != nullptr && (read || mask != Mask::kColumns)) {
        mask_slice(*tensor, slice, masks[group.name], copy);
      }
    }
  }
  return whole;
}

Model cut(const Model& model, const Analysis& analysis, const sparsity::Cut& cut) {
  Model small{cut_program(analysis, cut), copy_of(model).weights};
  sparsity::apply_cut(small.weights, cut);
  return small;
}

double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto error = ((a[i] - b[i]).abs().max() / b[i].abs().max()).item<double>();
    largest = tests::larger(largest, error);
  }
  return largest;
}

double masked_error(const Model& small, const Model& model, const Analysis& analysis, const sparsity::Masks& masks,
                    Mask mask) {
  const auto inputs = make_inputs(model.program.graph());
  return difference(run(small, inputs), run(masked(model, analysis, masks, mask), inputs));
}

bool trains(Model& model, const std::vector<at::Tensor>& inputs) {
  const auto loss = [&] {
    at::Tensor total = at::zeros({});
    for (const at::Tensor& output : model.program.run(inputs, model.weights, program::Mode::kTrain)) {
      total = total + output.square().mean();
    }
    return total;
  };
  for (auto& item : model.weights.params) item.value() = item.value().detach().requires_grad_();
  loss().backward();
  const at::NoGradGuard no_grad;
  for (auto& item : model.weights.params) {
    const at::Tensor gradient = item.value().grad();
    if (!gradient.defined()) continue;
    if (!gradient.isfinite().all().item<bool>()) return false;
    item.value().sub_(gradient, 1e-3);
  }
  return loss().isfinite().item<bool>();
}

}  // namespace prunex::channels
