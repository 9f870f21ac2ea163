// What calls multiply and add for one image, as products of the extents of their values.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

using Product = std::vector<AxisOf>;

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

size_t rank_of(const Graph& graph, ValueId value) {
  return graph.values.at(value).shape.size();
}

Product last(const Graph& graph, ValueId value, size_t from_back = 1) {
  const size_t axes = rank_of(graph, value);
  if (axes < from_back) throw std::out_of_range("rank");
  return extents(value, axes - from_back, axes - from_back + 1);
}

}  // namespace

/// Every output position reads one filter; every input position of a transposed convolution writes through one.
AxisProducts convolution_macs(const Graph& graph, const Node& node) {
  const ValueId kernel = value_of(node, "weight");
  const ValueId positions = is_transposed(node) ? value_of(node, "input") : node.outputs[0];
  return {extents(positions, 0, rank_of(graph, positions)) * extents(kernel, 1, rank_of(graph, kernel))};
}

/// Every matrix of every layer and direction meets every step of every sequence.
AxisProducts recurrent_macs(const Graph& graph, const Node& node) {
  const ValueId input = value_of(node, "input");
  AxisProducts products;
  if (rank_of(graph, input) == 0) return {};
  for (const ValueId weight : node.find("params")->values) {
    if (rank_of(graph, weight) != 2) continue;
    products.push_back(extents(input, 0, rank_of(graph, input) - 1) * extents(weight, 0, 2));
  }
  return products;
}

/// Each entry of the result is a sum over the last axis of the left factor.
AxisProducts product_macs(const Graph& graph, const Node& node) {
  const ValueId output = node.outputs[0];
  const auto given = [&](const char* name) { return node.find(name) != nullptr; };
  const char* left = given("input") ? "input" : given("mat1") ? "mat1" : given("batch1") ? "batch1" : "self";
  return {extents(output, 0, rank_of(graph, output)) * last(graph, value_of(node, left))};
}

/// Of two factors: as many as their letters have positions together.
AxisProducts einsum_macs(const Graph& graph, const Node& node) {
  const Argument* equation = node.find("equation");
  const Argument* operands = node.find("tensors");
  const bool known = equation != nullptr && equation->literal.isString() && operands != nullptr;
  if (!known || operands->values.size() != 2) return {};
  std::string terms = equation->literal.toStringRef();
  terms.erase(std::min(terms.size(), terms.find('-')));
  if (terms.find('.') != std::string::npos) return {};
  Product product;
  std::string seen;
  size_t operand = 0, axis = 0;
  for (const char letter : terms) {
    if (letter == ' ') continue;
    if (letter == ',') {
      ++operand;
      axis = 0;
      continue;
    }
    const ValueId value = operands->values.at(operand);
    if (axis >= rank_of(graph, value)) throw std::out_of_range("a letter without an axis");
    if (seen.find(letter) == std::string::npos) product.push_back({value, axis});
    seen += letter;
    ++axis;
  }
  return {product};
}

/// Queries against keys, then the weights against the values.
AxisProducts attention_macs(const Graph& graph, const Node& node) {
  const ValueId query = value_of(node, "query");
  if (rank_of(graph, query) == 0) return {};
  const Product scores = extents(query, 0, rank_of(graph, query) - 1) * last(graph, value_of(node, "key"), 2);
  return {scores * last(graph, query), scores * last(graph, value_of(node, "value"))};
}

}  // namespace prunex::program
