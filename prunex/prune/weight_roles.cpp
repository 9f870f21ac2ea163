#include "prunex/prune/weight_roles.h"

#include <string_view>
#include <utility>

#include "prunex/prune/arguments.h"

namespace prunex::prune {
namespace {

using program::Graph;
using program::kNoValue;
using program::Node;
using program::Role;
using program::ValueId;
using Roles = std::map<std::string, WeightRole>;

bool is_transposed(const Node& node) {
  return node.target.starts_with("aten::conv_transpose") || boolean(node, "transposed", false);
}

WeightRole convolution(const Graph& graph, const Node& node) {
  const int64_t groups = integer(node, "groups", 1);
  if (is_transposed(node)) return {WeightKind::kConvolution, 1, groups};
  const bool depthwise = groups > 1 && graph.values.at(tensor(node, "weight")).shape.at(0).factor == groups;
  return {depthwise ? WeightKind::kDepthwise : WeightKind::kConvolution, 0, groups};
}

bool is_recurrent(const Node& node) {
  return node.target.starts_with("aten::lstm") || node.target.starts_with("aten::gru") ||
         node.target.starts_with("aten::rnn_");
}

/// Of the argument "weight", or of the matrices of a recurrent layer.
WeightRole role_in(const Graph& graph, const Node& node) {
  const std::string_view target = node.target;
  if (target.starts_with("aten::conv")) return convolution(graph, node);
  if (target == "aten::linear") return {WeightKind::kLinear, 0, 1};
  if (is_recurrent(node)) return {WeightKind::kRecurrent, 0, 1};
  if (target == "aten::embedding") return {WeightKind::kEmbedding, 1, 1};
  if (target == "aten::batch_norm") return {WeightKind::kBatchNorm, -1, 1};
  if (target == "aten::layer_norm") return {WeightKind::kLayerNorm, -1, 1};
  if (target == "aten::instance_norm" || target == "aten::group_norm") return {WeightKind::kOtherNorm, -1, 1};
  return {};
}

void add(Roles& roles, const Graph& graph, ValueId value, const WeightRole& role) {
  if (value == kNoValue || graph.values[value].role != Role::kParameter) return;
  WeightRole& known = roles[graph.owner(graph.values[value].weight)];
  if (known.kind == WeightKind::kOther) known = role;
}

/// Matrices, and vectors that are biases.
void add_recurrent(Roles& roles, const Graph& graph, const Node& node) {
  const WeightRole matrix = role_in(graph, node);
  for (ValueId value : node.find("params")->values) {
    const bool bias = graph.values.at(value).shape.size() < 2;
    add(roles, graph, value, bias ? WeightRole{WeightKind::kBias, -1, 1, matrix.kind} : matrix);
  }
}

}  // namespace

Roles weight_roles(const Graph& graph) {
  Roles roles;
  for (const Node& node : graph.nodes) {
    if (is_recurrent(node)) add_recurrent(roles, graph, node);
    if (node.find("weight") == nullptr) continue;
    const WeightRole role = role_in(graph, node);
    add(roles, graph, tensor(node, "weight"), role);
    if (node.find("bias") != nullptr) add(roles, graph, tensor(node, "bias"), {WeightKind::kBias, -1, 1, role.kind});
  }
  for (const program::Value& value : graph.values) {
    if (value.role == Role::kParameter) roles.try_emplace(graph.owner(value.weight));
  }
  return roles;
}

std::string layer_of(const std::string& weight) {
  const size_t dot = weight.rfind('.');
  return dot == std::string::npos ? weight : weight.substr(0, dot);
}

const char* name_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::kConvolution:
      return "convolution";
    case WeightKind::kDepthwise:
      return "depthwise convolution";
    case WeightKind::kLinear:
      return "linear";
    case WeightKind::kRecurrent:
      return "recurrent";
    case WeightKind::kEmbedding:
      return "embedding";
    case WeightKind::kBatchNorm:
      return "batch norm";
    case WeightKind::kLayerNorm:
      return "layer norm";
    case WeightKind::kOtherNorm:
      return "norm";
    case WeightKind::kBias:
      return "bias";
    case WeightKind::kOther:
      return "other";
  }
  return "";
}

int64_t channels_per_unit(const sparsity::Slice& slice, int64_t units) {
  return slice.index.empty() ? 1 : static_cast<int64_t>(slice.index.size()) / units;
}

bool is_layer(WeightKind kind) {
  using Kind = WeightKind;
  return kind == Kind::kConvolution || kind == Kind::kDepthwise || kind == Kind::kLinear || kind == Kind::kRecurrent ||
         kind == Kind::kEmbedding;
}

bool makes_units(const WeightRole& role, const sparsity::Slice& slice) {
  return is_layer(role.kind) && slice.axis == role.out_axis;
}

}  // namespace prunex::prune
