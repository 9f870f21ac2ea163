#include "prunex/prune/torch_pruning_count.h"

#include <array>
#include <set>
#include <string_view>

#include "prunex/prune/arguments.h"

namespace prunex::prune {
namespace {

using program::AxisOf;
using program::Graph;
using program::kNoValue;
using program::Node;
using program::ValueId;
using Axes = std::vector<AxisOf>;

Axes axes_of(const Graph& graph, ValueId value, size_t first = 0) {
  Axes axes;
  for (size_t axis = first; axis < graph.values.at(value).shape.size(); ++axis) axes.push_back({value, axis});
  return axes;
}

Axes operator+(Axes axes, const Axes& more) {
  axes.insert(axes.end(), more.begin(), more.end());
  return axes;
}

bool has(const Node& node, const char* argument) {
  return node.find(argument) != nullptr && tensor(node, argument) != kNoValue;
}

/// The class of the innermost module that made the call is one of PyTorch's of this kind, or unknown.
bool is_from_module(const Node& node, std::string_view kind) {
  const size_t stack = node.metadata.find("\"nn_module_stack\"");
  if (stack == std::string::npos) return true;
  const size_t begin = node.metadata.find(':', stack);
  if (begin == std::string::npos) return true;
  const size_t end = node.metadata.find('"', node.metadata.find('"', begin) + 1);
  const std::string_view modules = std::string_view(node.metadata).substr(begin, end - begin);
  const std::string_view innermost = modules.substr(modules.rfind(',') + 1);
  return innermost == "torch.nn.Module" || innermost.starts_with(kind);
}

void add_convolution(Count& count, const Graph& graph, const Widths& widths, const Node& node) {
  const ValueId output = node.outputs[0], weight = tensor(node, "weight");
  const bool transposed = node.target.starts_with("aten::conv_transpose");
  const Axes positions = axes_of(graph, output, transposed ? 2 : 0);
  count.add(1, widths, positions + axes_of(graph, weight, transposed ? 0 : 1));
  if (has(node, "bias")) count.add(1, widths, axes_of(graph, output));
}

void add_linear(Count& count, const Graph& graph, const Widths& widths, const Node& node) {
  const AxisOf rows{tensor(node, "weight"), 0};
  count.add(1, widths, axes_of(graph, tensor(node, "input")) + Axes{rows});
  if (has(node, "bias")) count.add(1, widths, {rows});
}

void add_elementwise(Count& count, const Graph& graph, const Widths& widths, const Node& node) {
  static const std::set<std::string_view> kActivations{"relu", "relu_",     "prelu",      "elu",        "elu_",
                                                       "gelu", "hardtanh_", "leaky_relu", "leaky_relu_"};
  static const std::set<std::string_view> kPools{
      "max_pool1d", "max_pool2d",          "max_pool3d",          "avg_pool1d",          "avg_pool2d",
      "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d"};
  const std::string_view name = std::string_view(node.target).substr(std::string_view("aten::").size());
  if (kActivations.count(name) > 0 && is_from_module(node, "torch.nn.modules.activation")) {
    count.add(1, widths, axes_of(graph, node.outputs[0]));
  } else if (kPools.count(name) > 0 && is_from_module(node, "torch.nn.modules.pooling")) {
    count.add(1, widths, axes_of(graph, tensor(node, "self")));
  } else if (name == "batch_norm" || name == "instance_norm" || name == "group_norm" || name == "layer_norm") {
    count.add(has(node, "weight") ? 2 : 1, widths, axes_of(graph, tensor(node, "input")));
  }
}

}  // namespace

Count torch_pruning_count(const Graph& graph, const Widths& widths) {
  Count count;
  for (const Node& node : graph.nodes) {
    if (!node.target.starts_with("aten::")) continue;
    if (node.target.starts_with("aten::conv")) {
      if (has(node, "weight")) add_convolution(count, graph, widths, node);
    } else if (node.target == "aten::linear") {
      add_linear(count, graph, widths, node);
    } else {
      add_elementwise(count, graph, widths, node);
    }
  }
  return count;
}

}  // namespace prunex::prune
