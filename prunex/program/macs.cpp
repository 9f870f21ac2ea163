#include "prunex/program/macs.h"

#include <fmt/format.h>

#include <stdexcept>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

int64_t macs_of(const Graph& graph, const Node& node) {
  int64_t total = 0;
  for (const auto& product : mac_products(graph, node)) {
    int64_t count = 1;
    bool overflows = false;
    for (const AxisOf& extent : product) {
      overflows |= __builtin_mul_overflow(count, graph.values.at(extent.value).shape.at(extent.axis).factor, &count);
    }
    if (overflows || count > kMostMacs) {
      throw std::invalid_argument(fmt::format("node {}: too many multiply-accumulates", describe(graph, node)));
    }
    total += count;
  }
  return total / graph.images();
}

}  // namespace

AxisList axes_of(const Graph& graph, ValueId value, size_t first) {
  AxisList axes;
  for (size_t axis = first; axis < graph.values.at(value).shape.size(); ++axis) axes.push_back({value, axis});
  return axes;
}

AxisList operator+(AxisList axes, const AxisList& more) {
  axes.insert(axes.end(), more.begin(), more.end());
  return axes;
}

AxisProducts mac_products(const Graph& graph, const Node& node) {
  const auto products = operation_of(node.target).macs;
  if (products == nullptr) return {};
  try {
    return products(graph, node);
  } catch (const std::out_of_range&) {
    throw std::invalid_argument(
        fmt::format("node {}: the shapes that are recorded do not fit its operation", describe(graph, node)));
  }
}

bool is_layer(const Node& node) {
  return operation_of(node.target).layer;
}

std::vector<const Node*> counted_calls(const Graph& graph) {
  std::vector<bool> of_weights(graph.values.size());
  for (size_t value = 0; value < graph.values.size(); ++value) {
    of_weights[value] = graph.values[value].role == Role::kParameter;
  }
  std::vector<const Node*> calls;
  for (const Node& node : graph.nodes) {
    bool any = false, all = true;
    for (const Argument& argument : node.arguments) {
      for (const ValueId value : argument.values) {
        if (value == kNoValue) continue;
        const Role role = graph.values[value].role;
        if (role == Role::kSymInt || role == Role::kConstant || role == Role::kBuffer) continue;
        const bool added = argument.name == "self" && node.find("batch1") != nullptr;
        any |= of_weights[value] && !added;
        all &= of_weights[value];
      }
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) of_weights[output] = any && all;
    }
    const bool counts = any && !all && operation_of(node.target).macs != nullptr;
    if (is_layer(node) || counts) calls.push_back(&node);
  }
  return calls;
}

int64_t macs(const Graph& graph) {
  int64_t total = 0;
  for (const Node* node : counted_calls(graph)) total += macs_of(graph, *node);
  return total;
}

int64_t parameter_count(const Weights& weights) {
  int64_t total = 0;
  for (const auto& item : weights.params) total += item.value().numel();
  return total;
}

}  // namespace prunex::program
