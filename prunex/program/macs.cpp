#include "prunex/program/macs.h"

#include <fmt/format.h>

#include <functional>
#include <stdexcept>

#include "prunex/program/plan.h"

namespace prunex::program {
namespace {

using Product = std::vector<AxisOf>;
using Products = std::vector<Product>;

ValueId value_of(const Node& node, const char* argument) {
  return node.find(argument)->values.at(0);
}

/// The extents of axes begin … end - 1.
Product extents(ValueId value, size_t begin, size_t end) {
  Product product;
  for (size_t axis = begin; axis < end; ++axis) product.push_back({value, axis});
  return product;
}

Product operator*(Product product, const Product& other) {
  product.insert(product.end(), other.begin(), other.end());
  return product;
}

size_t rank(const Graph& graph, ValueId value) {
  return graph.values.at(value).shape.size();
}

Product last(const Graph& graph, ValueId value, size_t from_back = 1) {
  const size_t axes = rank(graph, value);
  if (axes < from_back) throw std::out_of_range("rank");
  return extents(value, axes - from_back, axes - from_back + 1);
}

bool is_transposed(const Node& node) {
  if (node.target.starts_with("aten::conv_transpose")) return true;
  const Argument* flag = node.find("transposed");
  return flag != nullptr && flag->literal.isBool() && flag->literal.toBool();
}

/// Every output position reads one filter; every input position of a transposed convolution writes through one.
Products convolution(const Graph& graph, const Node& node) {
  const ValueId kernel = value_of(node, "weight");
  const ValueId positions = is_transposed(node) ? value_of(node, "input") : node.outputs[0];
  return {extents(positions, 0, rank(graph, positions)) * extents(kernel, 1, rank(graph, kernel))};
}

/// Every matrix of every layer and direction meets every step of every sequence.
Products recurrent(const Graph& graph, const Node& node) {
  const ValueId input = value_of(node, "input");
  Products products;
  if (rank(graph, input) == 0) return {};
  for (const ValueId weight : node.find("params")->values) {
    if (rank(graph, weight) != 2) continue;
    products.push_back(extents(input, 0, rank(graph, input) - 1) * extents(weight, 0, 2));
  }
  return products;
}

/// Each entry of the result is a sum over the last axis of the left factor.
Products product(const Graph& graph, const Node& node, const char* left) {
  const ValueId output = node.outputs[0];
  return {extents(output, 0, rank(graph, output)) * last(graph, value_of(node, left))};
}

/// Queries against keys, then the weights against the values.
Products attention(const Graph& graph, const Node& node) {
  const ValueId query = value_of(node, "query");
  if (rank(graph, query) == 0) return {};
  const Product scores = extents(query, 0, rank(graph, query) - 1) * last(graph, value_of(node, "key"), 2);
  return {scores * last(graph, query), scores * last(graph, value_of(node, "value"))};
}

enum class Kind { kLayer, kProduct };
struct Rule {
  Kind kind;
  std::function<Products(const Graph&, const Node&)> products;
};

const std::map<std::string, Rule>& rules() {
  const auto of = [](const char* left) {
    return [left](const Graph& graph, const Node& node) { return product(graph, node, left); };
  };
  static const std::map<std::string, Rule> table = {
      {"aten::conv1d", {Kind::kLayer, convolution}},
      {"aten::conv1d.padding", {Kind::kLayer, convolution}},
      {"aten::conv2d", {Kind::kLayer, convolution}},
      {"aten::conv2d.padding", {Kind::kLayer, convolution}},
      {"aten::conv3d", {Kind::kLayer, convolution}},
      {"aten::conv3d.padding", {Kind::kLayer, convolution}},
      {"aten::convolution", {Kind::kLayer, convolution}},
      {"aten::conv_transpose1d", {Kind::kLayer, convolution}},
      {"aten::conv_transpose2d.input", {Kind::kLayer, convolution}},
      {"aten::conv_transpose3d.input", {Kind::kLayer, convolution}},
      {"aten::linear", {Kind::kLayer, of("input")}},
      {"aten::addmm", {Kind::kLayer, of("mat1")}},
      {"aten::lstm.input", {Kind::kLayer, recurrent}},
      {"aten::gru.input", {Kind::kLayer, recurrent}},
      {"aten::rnn_tanh.input", {Kind::kLayer, recurrent}},
      {"aten::rnn_relu.input", {Kind::kLayer, recurrent}},
      {"aten::baddbmm", {Kind::kProduct, of("batch1")}},
      {"aten::mm", {Kind::kProduct, of("self")}},
      {"aten::bmm", {Kind::kProduct, of("self")}},
      {"aten::matmul", {Kind::kProduct, of("self")}},
      {"aten::scaled_dot_product_attention", {Kind::kProduct, attention}},
  };
  return table;
}

// Of a node, for one image: sums of them do not overflow.
constexpr int64_t kMostMacs = int64_t{1} << 44;

int64_t count(const Graph& graph, const Node& node) {
  int64_t total = 0;
  for (const Product& product : mac_products(graph, node)) {
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
  return total;
}

}  // namespace

Products mac_products(const Graph& graph, const Node& node) {
  const auto rule = rules().find(node.target);
  if (rule == rules().end()) return {};
  try {
    return rule->second.products(graph, node);
  } catch (const std::out_of_range&) {
    throw std::invalid_argument(
        fmt::format("node {}: the shapes that are recorded do not fit its operation", describe(graph, node)));
  }
}

std::vector<std::string> operations_with_macs() {
  std::vector<std::string> operations;
  for (const auto& item : rules()) operations.push_back(item.first);
  return operations;
}

bool is_layer(const Node& node) {
  const auto rule = rules().find(node.target);
  return rule != rules().end() && rule->second.kind == Kind::kLayer;
}

std::map<std::string, int64_t> macs_by_operation(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) {
    if (rules().count(node.target) > 0) counts[node.target] += count(graph, node);
  }
  return counts;
}

int64_t macs(const Graph& graph) {
  int64_t total = 0;
  for (const Node& node : graph.nodes) {
    if (is_layer(node)) total += count(graph, node);
  }
  return total;
}

std::map<std::string, int64_t> macs_by_weight(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) {
    if (rules().count(node.target) == 0 || node.find("weight") == nullptr) continue;
    counts[graph.values.at(value_of(node, "weight")).weight] += count(graph, node);
  }
  return counts;
}

int64_t parameter_count(const Weights& weights) {
  int64_t total = 0;
  for (const auto& item : weights.params) total += item.value().numel();
  return total;
}

}  // namespace prunex::program
