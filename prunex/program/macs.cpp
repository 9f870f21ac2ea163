#include "prunex/program/macs.h"

#include <functional>

namespace prunex::program {
namespace {

/// Numbers per image.
int64_t size(const Shape& shape) {
  int64_t product = 1;
  for (const Extent& extent : shape) product *= extent.factor;
  return product;
}

const Shape& shape_of(const Graph& graph, const Node& node, const char* argument) {
  return graph.values.at(node.find(argument)->values.at(0)).shape;
}

bool is_transposed(const Node& node) {
  if (node.target.starts_with("aten::conv_transpose")) return true;
  const Argument* flag = node.find("transposed");
  return flag != nullptr && flag->literal.isBool() && flag->literal.toBool();
}

/// Every output position reads one filter; every input position of a transposed convolution writes through one.
int64_t convolution(const Graph& graph, const Node& node) {
  const Shape& kernel = shape_of(graph, node, "weight");
  const Shape& positions =
      is_transposed(node) ? shape_of(graph, node, "input") : graph.values.at(node.outputs[0]).shape;
  return size(positions) * (size(kernel) / kernel[0].factor);
}

int64_t linear(const Graph& graph, const Node& node) {
  return size(graph.values.at(node.outputs[0]).shape) * shape_of(graph, node, "input").back().factor;
}

/// Each entry of the result is a sum over the last axis of the left factor.
int64_t product(const Graph& graph, const Node& node, const char* left) {
  return size(graph.values.at(node.outputs[0]).shape) * shape_of(graph, node, left).back().factor;
}

/// Queries against keys, then the weights against the values.
int64_t attention(const Graph& graph, const Node& node) {
  const Shape& query = shape_of(graph, node, "query");
  const Shape& key = shape_of(graph, node, "key");
  const Shape& value = shape_of(graph, node, "value");
  const int64_t scores = size(query) / query.back().factor * key[key.size() - 2].factor;
  return scores * (query.back().factor + value.back().factor);
}

enum class Kind { kLayer, kProduct };
struct Rule {
  Kind kind;
  std::function<int64_t(const Graph&, const Node&)> count;
};

const std::map<std::string, Rule>& rules() {
  const auto of = [](const char* left) {
    return [left](const Graph& graph, const Node& node) { return product(graph, node, left); };
  };
  static const std::map<std::string, Rule> table = {
      {"aten::conv1d", {Kind::kLayer, convolution}},
      {"aten::conv2d", {Kind::kLayer, convolution}},
      {"aten::conv2d.padding", {Kind::kLayer, convolution}},
      {"aten::conv3d", {Kind::kLayer, convolution}},
      {"aten::convolution", {Kind::kLayer, convolution}},
      {"aten::conv_transpose1d", {Kind::kLayer, convolution}},
      {"aten::conv_transpose2d.input", {Kind::kLayer, convolution}},
      {"aten::conv_transpose3d.input", {Kind::kLayer, convolution}},
      {"aten::linear", {Kind::kLayer, linear}},
      {"aten::addmm", {Kind::kLayer, of("mat1")}},
      {"aten::mm", {Kind::kProduct, of("self")}},
      {"aten::bmm", {Kind::kProduct, of("self")}},
      {"aten::matmul", {Kind::kProduct, of("self")}},
      {"aten::scaled_dot_product_attention", {Kind::kProduct, attention}},
  };
  return table;
}

}  // namespace

std::map<std::string, int64_t> macs_by_operation(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) {
    const auto rule = rules().find(node.target);
    if (rule != rules().end()) counts[node.target] += rule->second.count(graph, node);
  }
  return counts;
}

int64_t macs(const Graph& graph) {
  int64_t total = 0;
  for (const auto& [target, count] : macs_by_operation(graph)) {
    if (rules().at(target).kind == Kind::kLayer) total += count;
  }
  return total;
}

std::map<std::string, int64_t> macs_by_weight(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) {
    const auto rule = rules().find(node.target);
    const Argument* weight = node.find("weight");
    if (rule == rules().end() || weight == nullptr) continue;
    counts[graph.values.at(weight->values.at(0)).weight] += rule->second.count(graph, node);
  }
  return counts;
}

int64_t parameter_count(const Weights& weights) {
  int64_t total = 0;
  for (const auto& item : weights.params) total += item.value().numel();
  return total;
}

}  // namespace prunex::program
