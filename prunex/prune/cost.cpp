#include "prunex/prune/cost.h"

#include <set>
#include <string_view>

#include "prunex/program/macs.h"
#include "prunex/prune/torch_pruning_count.h"

namespace prunex::prune {
namespace {

using program::AxisOf;
using program::Graph;
using program::Role;
using program::ValueId;

Count parameters_of(const Graph& graph, const Widths& widths) {
  Count count;
  std::set<std::string> seen;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const program::Value& value = graph.values[id];
    if (value.role != Role::kParameter || !seen.insert(graph.owner(value.weight)).second) continue;
    std::vector<AxisOf> axes;
    for (size_t axis = 0; axis < value.shape.size(); ++axis) axes.push_back({static_cast<ValueId>(id), axis});
    count.add(1, widths, axes);
  }
  return count;
}

Count macs_of(const Graph& graph, const Widths& widths) {
  Count count;
  for (const program::Node& node : graph.nodes) {
    if (!program::is_layer(node)) continue;
    for (const auto& product : program::mac_products(graph, node)) count.add(1, widths, product);
  }
  return count;
}

}  // namespace

void Count::add(int64_t factor, const Widths& widths, const std::vector<AxisOf>& axes) {
  Product product{.factor = factor, .widths = {}};
  for (const AxisOf& axis : axes) {
    const Width& width = widths.of(axis);
    if (width.shares.empty()) {
      product.factor *= width.fixed;
    } else {
      product.widths.push_back(width);
    }
  }
  if (product.widths.empty()) {
    fixed_ += product.factor;
  } else {
    products_.push_back(std::move(product));
  }
}

int64_t Count::operator()(const std::vector<int64_t>& kept) const {
  int64_t total = fixed_;
  for (const Product& product : products_) {
    int64_t count = product.factor;
    for (const Width& width : product.widths) count *= width.at(kept);
    total += count;
  }
  return total;
}

Cost cost_of(const Graph& graph, const std::vector<sparsity::Group>& groups, Counting counting, GroupOptions options) {
  const Widths widths(graph, groups, options);
  return {parameters_of(graph, widths),
          counting == Counting::kMacs ? macs_of(graph, widths) : torch_pruning_count(graph, widths)};
}

std::vector<int64_t> all_units(const std::vector<sparsity::Group>& groups) {
  std::vector<int64_t> kept;
  for (const sparsity::Group& group : groups) kept.push_back(group.size);
  return kept;
}

}  // namespace prunex::prune
