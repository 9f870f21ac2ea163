#include "prunex/program/program.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

namespace prunex::program {
namespace {

constexpr int64_t kFewImages = 2;

at::Tensor zeros_like(const Value& value, int64_t images) {
  return at::zeros(sizes_of(value.shape, images), value.dtype);
}

/// All that the eval form computes of zeros, by value; undefined: not computed, or not for `wanted`.
template <class Wanted>
std::vector<at::Tensor> trace(const Graph& graph, Weights weights, int64_t images, const Wanted& wanted) {
  const at::NoGradGuard no_grad;
  Graph open = in_mode(graph, Mode::kEval);
  open.outputs.clear();
  for (const auto& node : open.nodes) {
    for (const auto output : node.outputs) {
      if (output != kNoValue && open.values[output].role == Role::kComputed && wanted(output)) {
        open.outputs.push_back(output);
      }
    }
  }
  const Program program(std::move(open));
  std::vector<at::Tensor> inputs;
  for (const auto input : graph.inputs) inputs.push_back(zeros_like(graph.values[input], images));
  const auto results = program.run(inputs, weights, Mode::kEval);
  std::vector<at::Tensor> by_value(graph.values.size());
  for (size_t i = 0; i < results.size(); ++i) by_value[program.graph().outputs[i]] = results[i];
  return by_value;
}

/// Positions of an axis for so many images.
struct Measured {
  int64_t images = 0, positions = 0;
};

Extent extent_of(const std::string& name, const Measured& few, const Measured& more) {
  if (few.positions == more.positions) return {few.positions, false};
  if (few.positions * more.images == more.positions * few.images) return {few.positions / few.images, true};
  throw std::invalid_argument(fmt::format("value '{}' has {} positions for {} images and {} for {}", name,
                                          few.positions, few.images, more.positions, more.images));
}

/// What nodes or the user take.
std::unordered_set<ValueId> used_values(const Graph& graph) {
  std::unordered_set<ValueId> used(graph.outputs.begin(), graph.outputs.end());
  for (const Node& node : graph.nodes) {
    for (const Argument& argument : node.arguments) used.insert(argument.values.begin(), argument.values.end());
  }
  return used;
}

}  // namespace

Weights zero_weights(const Graph& graph) {
  Weights weights;
  for (const Value& value : graph.values) {
    if (value.role != Role::kParameter && value.role != Role::kBuffer) continue;
    TensorDict& tensors = value.role == Role::kParameter ? weights.params : weights.buffers;
    const std::string& name = graph.owner(value.weight);
    if (!tensors.contains(name)) tensors.insert(name, zeros_like(value, 1));
  }
  return weights;
}

bool records_wrong_shapes(const Graph& graph) {
  const auto rank = [&](ValueId value) { return graph.values[value].shape.size(); };
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const ValueId state = node.tensor("hx");
    if (state == kNoValue || node.outputs.empty()) return false;
    const auto wrong = [&](ValueId output) { return output != kNoValue && rank(output) != rank(state); };
    return std::any_of(node.outputs.begin() + 1, node.outputs.end(), wrong);
  });
}

Graph with_measured_shapes(Graph graph, const Weights& weights) {
  const auto all = [](ValueId) { return true; };
  const int64_t few_images = graph.batch_of(kFewImages), more_images = graph.batch_of(few_images + 1);
  const auto few = trace(graph, weights, few_images, all), more = trace(graph, weights, more_images, all);
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!few[id].defined()) continue;
    Value& value = graph.values[id];
    value.shape.clear();
    for (int64_t axis = 0; axis < few[id].dim(); ++axis) {
      value.shape.push_back(
          extent_of(value.name, {few_images, few[id].size(axis)}, {more_images, more[id].size(axis)}));
    }
  }
  return graph;
}

std::vector<at::Tensor> values_of_zeros(const Graph& graph) {
  const auto all = [](ValueId) { return true; };
  return trace(graph, zero_weights(graph), graph.batch_of(kFewImages), all);
}

void check_shapes(const Program& program) {
  const Graph& graph = program.graph();
  const int64_t images = graph.batch_of(kFewImages);
  const auto used = used_values(in_mode(graph, Mode::kEval));
  const auto results = trace(graph, zero_weights(graph), images, [&](ValueId value) { return used.contains(value); });
  for (size_t id = 0; id < results.size(); ++id) {
    const Value& value = graph.values[id];
    // torch.export records the states of recurrent layers with an axis too many, and what is made of them.
    if (!results[id].defined() || results[id].dim() != static_cast<int64_t>(value.shape.size())) continue;
    const auto wanted = sizes_of(value.shape, images);
    TORCH_CHECK(results[id].sizes() == at::IntArrayRef(wanted), "[program] value '", value.name, "' is ",
                results[id].sizes(), ", wanted ", at::IntArrayRef(wanted));
  }
}

}  // namespace prunex::program
