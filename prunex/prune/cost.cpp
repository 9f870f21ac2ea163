#include "prunex/prune/cost.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "prunex/channels/operations.h"
#include "prunex/program/macs.h"

namespace prunex::prune {
namespace {

using channels::Counted;
using program::AxisList;
using program::AxisOf;
using program::Graph;
using program::kNoValue;
using program::Node;
using program::Role;
using program::ValueId;

Width width_of(const std::vector<channels::Unit>& labels, const channels::Analysis& analysis) {
  Width width{.whole = static_cast<int64_t>(labels.size()), .shares = {}};
  std::map<int32_t, int64_t> positions;
  for (const auto unit : labels) {
    const int32_t group = analysis.removable_of(unit);
    ++(group < 0 ? width.fixed : positions[group]);
  }
  for (const auto& [group, count] : positions) {
    width.shares.emplace_back(group, count / analysis.removable()[group].size);
  }
  return width;
}

/// Of all axes of all values.
class Widths {
 public:
  explicit Widths(const channels::Analysis& analysis) {
    const Graph& graph = analysis.graph();
    std::unordered_map<const void*, size_t> known;
    ids_.resize(graph.values.size());
    for (size_t value = 0; value < graph.values.size(); ++value) {
      const program::Shape& shape = graph.values[value].shape;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const auto labels = analysis.axes().peek(static_cast<ValueId>(value), static_cast<int64_t>(axis));
        if (labels == nullptr) {
          ids_[value].push_back(widths_.size());
          widths_.push_back({.whole = shape[axis].factor, .fixed = shape[axis].factor, .shares = {}});
          continue;
        }
        const auto [found, added] = known.emplace(labels.get(), widths_.size());
        if (added) widths_.push_back(width_of(*labels, analysis));
        ids_[value].push_back(found->second);
      }
    }
  }

  std::vector<Width> of(const AxisList& axes) const {
    std::vector<Width> widths;
    for (const AxisOf& axis : axes) widths.push_back(widths_[ids_.at(axis.value).at(axis.axis)]);
    return widths;
  }

 private:
  std::vector<Width> widths_;
  std::vector<std::vector<size_t>> ids_;  // value, axis -> widths_
};

Count parameters_of(const Graph& graph, const Widths& widths) {
  Count count;
  std::set<std::string> seen;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const program::Value& value = graph.values[id];
    if (value.role != Role::kParameter || !seen.insert(graph.owner(value.weight)).second) continue;
    count.add(1, widths.of(axes_of(graph, static_cast<ValueId>(id))));
  }
  return count;
}

Count macs_of(const Graph& graph, const Widths& widths) {
  Count count(graph.images());
  for (const program::Node* node : program::counted_calls(graph)) {
    for (const auto& product : program::mac_products(graph, *node)) count.add(1, widths.of(product));
  }
  return count;
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
  const ValueId output = node.outputs[0], weight = node.tensor("weight");
  const bool transposed = program::is_transposed(node);
  const AxisList images{{output, 0}}, positions = images + axes_of(graph, output, transposed ? 2 : 1);
  count.add(1, widths.of(positions + axes_of(graph, weight, transposed ? 0 : 1)));
  if (node.tensor("bias") != kNoValue) count.add(1, widths.of(axes_of(graph, output)));
}

void add_linear(Count& count, const Graph& graph, const Widths& widths, const Node& node) {
  const AxisOf rows{node.tensor("weight"), 0};
  count.add(1, widths.of(axes_of(graph, node.tensor("input")) + AxisList{rows}));
  if (node.tensor("bias") != kNoValue) count.add(graph.images(), widths.of({rows}));
}

void add_torch_pruning(Count& count, const Graph& graph, const Widths& widths, const Node& node) {
  switch (channels::operation_of(node.target).counted) {
    case Counted::kConvolution:
      return add_convolution(count, graph, widths, node);
    case Counted::kLinear:
      return add_linear(count, graph, widths, node);
    case Counted::kNorm:
      return count.add(node.tensor("weight") != kNoValue ? 2 : 1, widths.of(axes_of(graph, node.tensor("input"))));
    case Counted::kActivation:
      if (is_from_module(node, "torch.nn.modules.activation")) count.add(1, widths.of(axes_of(graph, node.outputs[0])));
      return;
    case Counted::kPool:
      if (is_from_module(node, "torch.nn.modules.pooling"))
        count.add(1, widths.of(axes_of(graph, node.tensor("self"))));
      return;
    case Counted::kNothing:
      return;
  }
}

Count torch_pruning_count(const Graph& graph, const Widths& widths) {
  Count count(graph.images());
  for (const Node& node : graph.nodes) add_torch_pruning(count, graph, widths, node);
  return count;
}

}  // namespace

void Count::add(int64_t factor, const std::vector<Width>& widths) {
  int64_t most = factor;
  bool overflows = false;
  for (const Width& width : widths) overflows |= __builtin_mul_overflow(most, width.whole, &most);
  if (overflows || most > program::kMostMacs) {
    throw std::invalid_argument(
        fmt::format("a layer or weight counts more than {} operations or parameters", program::kMostMacs));
  }
  Term term{.factor = factor, .widths = {}};
  for (const Width& width : widths) {
    if (width.shares.empty()) {
      term.factor *= width.fixed;
    } else {
      term.widths.push_back(width);
    }
  }
  if (term.widths.empty()) {
    fixed_ += term.factor;
  } else {
    terms_.push_back(std::move(term));
  }
}

int64_t Count::operator()(const std::vector<int64_t>& kept) const {
  int64_t total = fixed_;
  for (const Term& term : terms_) {
    int64_t count = term.factor;
    for (const Width& width : term.widths) count *= width.at(kept);
    total += count;
  }
  return total / images_;
}

Cost cost_of(const channels::Analysis& analysis, Counting counting) {
  const Widths widths(analysis);
  const Graph& graph = analysis.graph();
  return {parameters_of(graph, widths),
          counting == Counting::kMacs ? macs_of(graph, widths) : torch_pruning_count(graph, widths)};
}

std::vector<int64_t> all_units(const std::vector<sparsity::Group>& groups) {
  std::vector<int64_t> kept;
  for (const sparsity::Group& group : groups) kept.push_back(group.size);
  return kept;
}

}  // namespace prunex::prune
