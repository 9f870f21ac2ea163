#include "prunex/channels/roles.h"

#include <algorithm>

#include "prunex/channels/operations.h"

namespace prunex::channels {
namespace {

using program::Role;

/// A parameter, and for each axis of what is made of it the parameter's own.
struct Source {
  ValueId parameter = kNoValue;
  std::vector<int64_t> axes;
};

/// Collects the roles of a graph's parameters.
class RoleCollector {
 public:
  explicit RoleCollector(const Graph& graph) : graph_(graph), producers_(producers_of(graph)) {}

  WeightRoles collect() {
    for (const Node& node : graph_.nodes) visit(node);
    for (const program::Value& value : graph_.values) {
      if (value.role == Role::kParameter) roles_.try_emplace(graph_.owner(value.weight));
    }
    return std::move(roles_);
  }

 private:
  static constexpr int64_t kNone = -1;

  void visit(const Node& node) {
    const WeightKind kind = operation_of(node.target).weights;
    switch (kind) {
      case WeightKind::kConvolution:
        return add_layer(node, convolution(node), program::is_transposed(node) ? 0 : 1);
      case WeightKind::kLinear:
        return add_layer(node, {kind, 0, 1}, 1);
      case WeightKind::kEmbedding:
        return add_layer(node, {kind, 1, 1});
      case WeightKind::kRecurrent:
        return add_recurrent(node);
      case WeightKind::kFactor:
        return node.find("equation") == nullptr ? add_product(node) : add_einsum(node);
      case WeightKind::kOther:
        return;
      default:
        return add_layer(node, {kind, -1, 1});
    }
  }

  /// The parameter that the value is a part of or computed of, element by element, its axes in any order; kNoValue: of
  /// none.
  Source source(ValueId value) const {
    Source source{value, in_order(rank(value))};
    while (graph_.values[source.parameter].role != Role::kParameter) {
      const Node* node = producers_[source.parameter];
      const ValueId input = node == nullptr ? kNoValue : operand(*node, source.parameter);
      if (input == kNoValue) return {};
      if (is_reshape(*node) && !same_shape(input, source.parameter)) {
        source.parameter = before_reshapes(source.parameter);
        if (source.parameter == kNoValue) return {};
        continue;
      }
      const auto order = order_before(*node, input, source.parameter);
      if (order.empty()) return {};
      for (int64_t& axis : source.axes) {
        if (axis >= static_cast<int64_t>(order.size())) return {};
        axis = order[axis];
      }
      source.parameter = input;
    }
    return source;
  }

  /// What had the value's shape, and its elements in their order, before it was reshaped; kNoValue: nothing had.
  ValueId before_reshapes(ValueId value) const {
    ValueId earlier = value;
    do {
      const Node* node = producers_[earlier];
      const ValueId input = node == nullptr ? kNoValue : operand(*node, earlier);
      if (input == kNoValue) return kNoValue;
      if (!is_reshape(*node) && order_before(*node, input, earlier) != in_order(rank(input))) return kNoValue;
      earlier = input;
    } while (!same_shape(earlier, value));
    return earlier;
  }

  /// What the node makes its result of, one element of each: the only operand that is as large and not made of a buffer
  /// (a mask); kNoValue: no such operand.
  ValueId operand(const Node& node, ValueId output) const {
    const auto inputs = tensor_inputs(graph_, node);
    if (inputs.size() == 1 || is_reshape(node)) return inputs[0];
    const Operation& operation = operation_of(node.target);
    if (operation.rule != elementwise_rule && operation.zero != Zero::kScaled) return kNoValue;
    ValueId found = kNoValue;
    for (const ValueId input : inputs) {
      if (!same_shape(input, output) || is_made_of_buffer(input)) continue;
      if (found != kNoValue) return kNoValue;
      found = input;
    }
    return found;
  }

  bool is_made_of_buffer(ValueId value) const {
    while (const Node* node = producers_[value]) {
      const auto inputs = tensor_inputs(graph_, *node);
      if (inputs.size() != 1) return false;
      value = inputs[0];
    }
    return graph_.values[value].role == Role::kBuffer || graph_.values[value].role == Role::kConstant;
  }

  bool same_shape(ValueId a, ValueId b) const { return graph_.values[a].shape == graph_.values[b].shape; }

  static bool is_reshape(const Node& node) {
    const Rule rule = operation_of(node.target).rule;
    return rule == reshape_rule || rule == reshape_as_rule;
  }

  /// For each axis of a node's output the one of its input; empty where zeros would not stay zeros, or where that is
  /// not all that it changes.
  std::vector<int64_t> order_before(const Node& node, ValueId input, ValueId output) const {
    const Operation& operation = operation_of(node.target);
    if (operation.rule == reorder_rule) return order_of(node, rank(input));
    std::vector<int64_t> order = in_order(rank(input));
    if (operation.rule == slice_rule || operation.rule == split_rule) return order;
    if (operation.rule == select_rule || operation.rule == unbind_rule) {
      order.erase(order.begin() + from_front(node.integer("dim", 0), rank(input)));
      return order;
    }
    const bool keeps_zeros = operation.zero != Zero::kNever && operation.zero != Zero::kAlways;
    const bool by_element = operation.rule == elementwise_rule && keeps_zeros;
    const bool known = operation.views || by_element || operation.zero == Zero::kScaled;
    return known && same_shape(input, output) ? order : std::vector<int64_t>();
  }

  /// `input`: the axis along which the layer reads; kNone: it does not.
  void add(ValueId value, WeightRole role, int64_t input = kNone) {
    if (value == kNoValue) return;
    const auto [parameter, axes] = source(value);
    const auto has = [&](int64_t axis) { return axis < static_cast<int64_t>(axes.size()); };
    if (parameter == kNoValue || !has(role.out_axis) || !has(input)) return;
    WeightRole& known = roles_[graph_.owner(graph_.values[parameter].weight)];
    const uint32_t inputs = known.inputs | (input == kNone ? 0 : uint32_t{1} << axes[input]);
    if (role.out_axis >= 0) role.out_axis = axes[role.out_axis];
    if (known.kind == WeightKind::kOther) known = role;
    known.inputs = inputs;
  }

  void add_bias(ValueId value, WeightKind layer) { add(value, {WeightKind::kBias, -1, 1, layer}); }

  void add_layer(const Node& node, const WeightRole& role, int64_t input = kNone) {
    if (node.find("weight") == nullptr) return;
    add(node.tensor("weight"), role, input);
    add_bias(node.tensor("bias"), role.kind);
  }

  WeightRole convolution(const Node& node) const {
    const int64_t groups = node.integer("groups", 1);
    if (program::is_transposed(node)) return {WeightKind::kConvolution, 1, groups};
    const bool depthwise = groups > 1 && extent(node.tensor("weight"), 0) == groups;
    return {depthwise ? WeightKind::kDepthwise : WeightKind::kConvolution, 0, groups};
  }

  int64_t rank(ValueId value) const { return static_cast<int64_t>(graph_.values.at(value).shape.size()); }
  int64_t extent(ValueId value, size_t axis) const { return graph_.values.at(value).shape.at(axis).factor; }

  /// Matrices, and vectors that are biases.
  void add_recurrent(const Node& node) {
    for (const ValueId value : node.find("params")->values) {
      rank(value) < 2 ? add_bias(value, WeightKind::kRecurrent) : add(value, {WeightKind::kRecurrent, 0, 1}, 1);
    }
  }

  /// Outputs are the rows of the left factor, the columns of the right one.
  void add_product(const Node& node) {
    const auto [left, right, added] = factors_of(node);
    if (left == kNoValue || right == kNoValue || rank(left) < 2 || rank(right) < 2) return;
    add(left, {WeightKind::kFactor, rank(left) - 2, 1}, rank(left) - 1);
    add(right, {WeightKind::kFactor, rank(right) - 1, 1}, rank(right) - 2);
    add_bias(added, WeightKind::kFactor);
  }

  /// Letters that only one operand and the result have are its outputs, letters that are summed over its inputs.
  void add_einsum(const Node& node) {
    std::string terms = node.find("equation")->literal.toStringRef();
    std::erase(terms, ' ');
    const size_t arrow = terms.find("->");
    if (arrow == std::string::npos) return;
    size_t begin = 0;
    for (const ValueId value : tensor_inputs(graph_, node)) {
      const size_t end = std::min(terms.find(',', begin), arrow);
      const auto operand = [&](const auto& is_wanted) {
        const auto found = std::find_if(terms.begin() + begin, terms.begin() + end, is_wanted);
        return found == terms.begin() + end ? kNone : found - terms.begin() - begin;
      };
      const auto is_kept = [&](char letter) { return terms.find(letter, arrow) != std::string::npos; };
      const auto is_own = [&](char letter) { return std::count(terms.begin(), terms.begin() + arrow, letter) == 1; };
      const int64_t out = operand([&](char letter) { return is_kept(letter) && is_own(letter); });
      const int64_t in = operand([&](char letter) { return !is_kept(letter); });
      if (out != kNone) add(value, {WeightKind::kFactor, out, 1}, in);
      begin = end + 1;
    }
  }

  const Graph& graph_;
  std::vector<const Node*> producers_;
  WeightRoles roles_;
};

}  // namespace

WeightRoles weight_roles(const Graph& graph) {
  return RoleCollector(graph).collect();
}

std::string layer_of(const std::string& weight) {
  const size_t dot = weight.rfind('.');
  return dot == std::string::npos ? weight : weight.substr(0, dot);
}

const char* name_of(WeightKind kind) {
  static constexpr const char* kNames[] = {"convolution", "depthwise convolution",
                                           "linear",      "recurrent",
                                           "embedding",   "factor",
                                           "batch norm",  "layer norm",
                                           "norm",        "bias",
                                           "other"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_layer(WeightKind kind) {
  return kind <= WeightKind::kFactor;
}

bool makes_units(const WeightRole& role, const sparsity::Slice& slice) {
  return is_layer(role.kind) && slice.axis == role.out_axis;
}

}  // namespace prunex::channels
