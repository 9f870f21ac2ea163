#include "prunex/prune/surgery.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "prunex/program/mode.h"
#include "prunex/prune/constants.h"
#include "prunex/prune/operators.h"
#include "prunex/prune/remains.h"

namespace prunex::prune {
namespace {

using program::Graph;
using program::kNoValue;
using program::Node;
using program::Program;
using program::Role;
using program::Value;
using program::ValueId;

constexpr int64_t kImages = 2;

std::vector<int64_t> sizes(const program::Shape& shape) {
  std::vector<int64_t> sizes;
  for (const program::Extent& extent : shape) sizes.push_back(extent.factor * (extent.per_image ? kImages : 1));
  return sizes;
}

at::Tensor zeros(const Value& value) {
  return at::zeros(sizes(value.shape), value.dtype);
}

Weights zero_weights(const Graph& graph) {
  Weights weights;
  for (const Value& value : graph.values) {
    if (value.role != Role::kParameter && value.role != Role::kBuffer) continue;
    TensorDict& tensors = value.role == Role::kParameter ? weights.params : weights.buffers;
    const std::string& name = graph.owner(value.weight);
    if (!tensors.contains(name)) tensors.insert(name, zeros(value));
  }
  return weights;
}

/// The eval form of a graph, giving out every tensor that it computes.
Graph exposed(const Graph& graph) {
  Graph open = program::in_mode(graph, program::Mode::kEval);
  for (const Node& node : open.nodes) {
    for (ValueId output : node.outputs) {
      if (output != kNoValue && open.values[output].role != Role::kSymInt) open.outputs.push_back(output);
    }
  }
  return open;
}

}  // namespace

Graph cut_graph(const Graph& graph, const sparsity::Cut& cut) {
  const Axes axes = analyze(graph);
  const Remains remains(axes, cut);
  Graph small = graph;
  for (size_t value = 0; value < graph.values.size(); ++value) {
    small.values[value].shape = remains.shape(static_cast<ValueId>(value));
  }
  for (Node& node : small.nodes) rewrite_constants(node, small, remains);
  return small;
}

Program cut_program(const Program& program, const sparsity::Cut& cut) {
  Program small(cut_graph(program.graph(), cut));
  check_shapes(small);
  return small;
}

void check_shapes(const Program& program) {
  const at::NoGradGuard no_grad;
  const Program open(exposed(program.graph()));
  const Graph& graph = open.graph();
  Weights weights = zero_weights(graph);
  std::vector<at::Tensor> images;
  for (ValueId input : graph.inputs) images.push_back(zeros(graph.values[input]));
  const auto results = open.run(images, weights, program::Mode::kEval);
  for (size_t i = 0; i < results.size(); ++i) {
    const Value& value = graph.values[graph.outputs[i]];
    TORCH_CHECK(results[i].sizes() == at::IntArrayRef(sizes(value.shape)), "[prune] value '", value.name, "' is ",
                results[i].sizes(), ", wanted ", at::IntArrayRef(sizes(value.shape)));
  }
}

}  // namespace prunex::prune
