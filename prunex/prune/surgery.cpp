#include "prunex/prune/surgery.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <unordered_set>

#include "prunex/program/mode.h"
#include "prunex/prune/arguments.h"
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

/// The eval form of a graph, giving out every tensor that it computes and uses.
Graph exposed(const Graph& graph) {
  Graph open = program::in_mode(graph, program::Mode::kEval);
  std::unordered_set<ValueId> used;
  for (const Node& node : open.nodes) {
    for (const program::Argument& argument : node.arguments)
      used.insert(argument.values.begin(), argument.values.end());
  }
  for (const Node& node : open.nodes) {
    for (ValueId output : node.outputs) {
      if (used.contains(output) && open.values[output].role != Role::kSymInt) open.outputs.push_back(output);
    }
  }
  return open;
}

/// nullptr: the cut removes whole units of these axes.
std::exception_ptr refusal(const Axes& axes, const sparsity::Cut& cut) {
  try {
    const Remains remains(axes, cut);
  } catch (const c10::Error&) {
    return std::current_exception();
  }
  return nullptr;
}

void cut_constant(Graph& graph, ValueId value, const Remains& remains) {
  at::Tensor& constant = graph.constants.at(graph.values[value].weight);
  for (int64_t axis = 0; axis < constant.dim(); ++axis) {
    const Labels labels = remains.axes().peek(value, axis);
    if (labels == nullptr) continue;
    constant = constant.index_select(axis, at::tensor(remains.kept(labels), at::kLong).to(constant.device()));
  }
}

/// Attention with values of another number of features than keys takes another kernel, whose result lies otherwise in
/// memory: what was a view of it may have to be a copy.
bool needs_copies(const Node& node, const Graph& small, const Axes& axes) {
  if (node.target != "aten::scaled_dot_product_attention") return false;
  const ValueId key = tensor(node, "key"), value = tensor(node, "value");
  return axes.shape(key).back() == axes.shape(value).back() &&
         small.values[key].shape.back() != small.values[value].shape.back();
}

void reshape_instead_of_view(Node& node) {
  if (node.target != "aten::view") return;
  node.target = "aten::reshape";
  for (program::Argument& argument : node.arguments) {
    if (argument.name == "size") argument.name = "shape";
  }
}

Graph cut_graph(const Axes& axes, const sparsity::Cut& cut) {
  const Remains remains(axes, cut);
  Graph small = axes.graph();
  for (size_t i = 0; i < small.values.size(); ++i) {
    const auto value = static_cast<ValueId>(i);
    small.values[i].shape = remains.shape(value);
    if (small.values[i].role == Role::kConstant) cut_constant(small, value, remains);
  }
  for (Node& node : small.nodes) rewrite_constants(node, small, remains);
  const auto copies = [&](const Node& node) { return needs_copies(node, small, axes); };
  if (std::any_of(small.nodes.begin(), small.nodes.end(), copies)) {
    std::for_each(small.nodes.begin(), small.nodes.end(), reshape_instead_of_view);
  }
  return small;
}

}  // namespace

Graph cut_graph(const Graph& graph, const sparsity::Cut& cut) {
  const Axes axes = analyze(graph);
  if (!refusal(axes, cut)) return cut_graph(axes, cut);
  for (const GroupOptions options : {GroupOptions{.heads = true}, GroupOptions{.statistics = true},
                                     GroupOptions{.statistics = true, .heads = true}}) {
    const Axes other = analyze(graph, options);
    if (!refusal(other, cut)) return cut_graph(other, cut);
  }
  std::rethrow_exception(refusal(axes, cut));
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
    // torch.export records the states of recurrent layers with an axis too many, and what is made of them.
    if (results[i].dim() != static_cast<int64_t>(value.shape.size())) continue;
    TORCH_CHECK(results[i].sizes() == at::IntArrayRef(sizes(value.shape)), "[prune] value '", value.name, "' is ",
                results[i].sizes(), ", wanted ", at::IntArrayRef(sizes(value.shape)));
  }
}

}  // namespace prunex::prune
