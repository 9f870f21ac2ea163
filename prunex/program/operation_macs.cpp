// What calls multiply and add for one image, as products of the extents of their values.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

size_t rank_of(const Graph& graph, ValueId value) {
  return graph.values.at(value).shape.size();
}

/// The axis so many from the back; the last one is 1.
AxisOf last(const Graph& graph, ValueId value, size_t from_back = 1) {
  const size_t axes = rank_of(graph, value);
  if (axes < from_back) throw std::out_of_range("rank");
  return {value, axes - from_back};
}

/// All axes but the last.
AxisList without_last(const Graph& graph, ValueId value) {
  AxisList axes = axes_of(graph, value);
  axes.pop_back();
  return axes;
}

}  // namespace

/// Every output position reads one filter; every input position of a transposed convolution writes through one.
AxisProducts convolution_macs(const Graph& graph, const Node& node) {
  const ValueId kernel = node.tensor("weight");
  const ValueId positions = is_transposed(node) ? node.tensor("input") : node.outputs[0];
  return {axes_of(graph, positions) + axes_of(graph, kernel, 1)};
}

/// Every matrix of every layer and direction meets every step of every sequence.
AxisProducts recurrent_macs(const Graph& graph, const Node& node) {
  const ValueId input = node.tensor("input");
  AxisProducts products;
  if (rank_of(graph, input) == 0) return {};
  for (const ValueId weight : node.find("params")->values) {
    if (rank_of(graph, weight) != 2) continue;
    products.push_back(without_last(graph, input) + axes_of(graph, weight));
  }
  return products;
}

/// Each entry of the result is a sum over the last axis of the left factor.
AxisProducts product_macs(const Graph& graph, const Node& node) {
  const auto given = [&](const char* name) { return node.find(name) != nullptr; };
  const char* left = given("input") ? "input" : given("mat1") ? "mat1" : given("batch1") ? "batch1" : "self";
  return {axes_of(graph, node.outputs[0]) + AxisList{last(graph, node.tensor(left))}};
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
  AxisList product;
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
  const ValueId query = node.tensor("query");
  if (rank_of(graph, query) == 0) return {};
  const AxisList scores = without_last(graph, query) + AxisList{last(graph, node.tensor("key"), 2)};
  return {scores + AxisList{last(graph, query)}, scores + AxisList{last(graph, node.tensor("value"))}};
}

}  // namespace prunex::program
