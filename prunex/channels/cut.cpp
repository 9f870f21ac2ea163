#include "prunex/channels/analysis.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "prunex/channels/operations.h"
#include "prunex/program/operations.h"
#include "prunex/program/program.h"

namespace prunex::channels {
namespace {

using sparsity::Cut;
using sparsity::TensorCut;

bool keeps(const TensorCut& cut, int64_t axis, int64_t position) {
  const auto kept = cut.kept.find(axis);
  return kept == cut.kept.end() || std::binary_search(kept->second.begin(), kept->second.end(), position);
}

void check_shapes(const Graph& graph, const Cut& cut) {
  for (const program::Value& value : graph.values) {
    if (value.role != program::Role::kParameter && value.role != program::Role::kBuffer) continue;
    const auto found = cut.tensors.find(graph.owner(value.weight));
    TORCH_CHECK(found != cut.tensors.end(), "[channels] the cut lacks '", value.weight, "'");
    const auto same = [](const program::Extent& extent, int64_t size) { return extent.factor == size; };
    TORCH_CHECK(std::equal(value.shape.begin(), value.shape.end(), found->second.shape.begin(),
                           found->second.shape.end(), same),
                "[channels] the cut is of another '", value.weight, "' than the program's");
  }
}

/// Every axis that loses something must carry units.
void check_axes(const std::vector<Member>& members, const Cut& cut) {
  std::set<std::pair<std::string, int64_t>> labelled;
  for (const Member& member : members) labelled.emplace(member.tensor, member.axis);
  for (const auto& [name, tensor] : cut.tensors) {
    for (const auto& [axis, kept] : tensor.kept) {
      TORCH_CHECK(labelled.count({name, axis}) > 0, "[channels] axis ", axis, " of '", name,
                  "' has no units that can be removed");
    }
  }
}

void cut_constant(Graph& graph, ValueId value, const Remains& remains) {
  at::Tensor& constant = graph.constants.at(graph.values[value].weight);
  for (int64_t axis = 0; axis < constant.dim(); ++axis) {
    const Labels labels = remains.axes().peek(value, axis);
    if (labels == nullptr) continue;
    constant = constant.index_select(axis, at::tensor(remains.kept(labels), at::kLong).to(constant.device()));
  }
}

/// Attention with values of another number of features than keys takes another kernel, whose result lies otherwise in
/// memory: what was a view of it may have to be a copy.
bool needs_copies(const Node& node, const Graph& small, const Graph& whole) {
  if (node.target != "aten::scaled_dot_product_attention") return false;
  const ValueId key = node.tensor("key"), value = node.tensor("value");
  return whole.values[key].shape.back() == whole.values[value].shape.back() &&
         small.values[key].shape.back() != small.values[value].shape.back();
}

void reshape_instead_of_view(Node& node) {
  if (node.target != "aten::view") return;
  node.target = "aten::reshape";
  for (Argument& argument : node.arguments) {
    if (argument.name == "size") argument.name = "shape";
  }
}

/// Whether an axis of what the node takes or gives has one position left.
bool leaves_one(const Node& node, const Graph& small, const Graph& whole) {
  const auto is_narrow = [&](ValueId value) {
    const Shape &left = small.values[value].shape, &before = whole.values[value].shape;
    for (size_t axis = 0; axis < left.size(); ++axis) {
      if (left[axis].factor == 1 && before[axis].factor > 1) return true;
    }
    return false;
  };
  return is_narrow(node.tensor("self")) || is_narrow(node.outputs[0]);
}

/// What is written in place into a copy must not reach what it is a copy of. Where an axis has one position left, the
/// order of axes may be no other any more, and a reshape that copied would show its source.
void keep_copies(Graph& small, const Graph& whole) {
  const auto may_show = [&](const Node& node) {
    const bool may_copy = program::operation_of(node.target).may_copy && node.tensor("self") != kNoValue;
    return may_copy && node.outputs[0] != kNoValue && leaves_one(node, small, whole);
  };
  const auto& nodes = small.nodes;
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_in_place(); })) return;
  if (std::none_of(nodes.begin(), nodes.end(), may_show)) return;
  const auto before = program::values_of_zeros(whole), after = program::values_of_zeros(small);
  const auto shows = [](const std::vector<at::Tensor>& values, ValueId value, ValueId other) {
    return value != kNoValue && values[value].defined() && values[other].defined() &&
           values[value].is_alias_of(values[other]);
  };
  std::vector<Node> result;
  for (size_t i = 0; i < nodes.size(); ++i) {
    result.push_back(nodes[i]);
    if (!may_show(nodes[i])) continue;
    const ValueId source = nodes[i].tensor("self"), copy = nodes[i].outputs[0];
    const auto writes = [&](const Node& node) { return node.is_in_place() && shows(after, node.tensor("self"), copy); };
    const bool is_written = std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(i), nodes.end(), writes);
    if (!is_written || shows(before, copy, source) || !shows(after, copy, source)) continue;
    const auto view = static_cast<ValueId>(small.values.size());
    small.values.push_back(small.values[copy]);
    small.values[view].name += "_view";
    result.back().outputs[0] = view;
    result.push_back({.target = "aten::clone",
                      .arguments = {{.name = "self", .kind = program::Argument::Kind::kValue, .values = {view}}},
                      .outputs = {copy}});
  }
  small.nodes = std::move(result);
}

void rewrite_numbers(Node& node, const Remains& remains) {
  const Rewrite rewrite = operation_of(node.target).rewrite;
  if (rewrite == nullptr || node.outputs.empty() || node.outputs[0] == kNoValue) return;
  const Graph& graph = remains.axes().graph();
  try {
    rewrite(node, remains);
  } catch (c10::Error& error) {
    error.add_context("in node " + program::describe(graph, node));
    throw;
  } catch (const std::logic_error&) {
    throw std::invalid_argument("node " + program::describe(graph, node) +
                                ": the shapes that are recorded do not fit its operation");
  }
}

}  // namespace

Remains::Remains(const Axes& axes, const Cut& cut) : axes_(axes), removed_(axes.units().size(), false) {
  check_shapes(axes.graph(), cut);
  const std::vector<Member> members = axes.members();
  check_axes(members, cut);
  for (const Member& member : members) remove(member, cut.tensors.at(member.tensor));
  for (const Member& member : members) check(member, cut.tensors.at(member.tensor));
}

void Remains::remove(const Member& member, const TensorCut& cut) {
  for (size_t position = 0; position < member.labels->size(); ++position) {
    if (keeps(cut, member.axis, static_cast<int64_t>(position))) continue;
    const Unit unit = (*member.labels)[position];
    TORCH_CHECK(unit != kFixed, "[channels] position ", position, " of axis ", member.axis, " of '", member.tensor,
                "' is fixed");
    const int32_t reason = axes_.units().reason(unit);
    TORCH_CHECK(reason == kFree, "[channels] position ", position, " of axis ", member.axis, " of '", member.tensor,
                "' cannot be removed: ", axes_.reason(reason));
    removed_[axes_.units().find(unit)] = true;
  }
}

void Remains::check(const Member& member, const TensorCut& cut) const {
  for (size_t position = 0; position < member.labels->size(); ++position) {
    const bool kept = keeps(cut, member.axis, static_cast<int64_t>(position));
    TORCH_CHECK(kept != is_removed((*member.labels)[position]), "[channels] the cut keeps position ", position,
                " of axis ", member.axis, " of '", member.tensor, "' and removes others that depend on it");
  }
}

std::vector<int64_t> Remains::kept(const Labels& labels) const {
  std::vector<int64_t> kept;
  for (size_t position = 0; position < labels->size(); ++position) {
    if (!is_removed((*labels)[position])) kept.push_back(static_cast<int64_t>(position));
  }
  return kept;
}

int64_t Remains::count(const Labels& labels, int64_t begin, int64_t end) const {
  TORCH_CHECK(begin >= 0 && begin <= end && end <= static_cast<int64_t>(labels->size()), "[channels] positions ", begin,
              " to ", end, " of an axis of ", labels->size());
  return std::count_if(labels->begin() + begin, labels->begin() + end, [&](Unit unit) { return !is_removed(unit); });
}

Shape Remains::after(ValueId value) const {
  Shape shape = axes_.shape(value);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const Labels labels = axes_.peek(value, static_cast<int64_t>(axis));
    if (labels != nullptr) shape[axis].factor = count(labels, 0, static_cast<int64_t>(labels->size()));
  }
  return shape;
}

Graph cut_graph(const Analysis& analysis, const Cut& cut) {
  const Remains remains(analysis.axes(), cut);
  Graph small = analysis.graph();
  for (size_t i = 0; i < small.values.size(); ++i) {
    const auto value = static_cast<ValueId>(i);
    small.values[i].shape = remains.after(value);
    if (small.values[i].role == program::Role::kConstant) cut_constant(small, value, remains);
  }
  for (Node& node : small.nodes) rewrite_numbers(node, remains);
  const auto copies = [&](const Node& node) { return needs_copies(node, small, analysis.graph()); };
  if (std::any_of(small.nodes.begin(), small.nodes.end(), copies)) {
    std::for_each(small.nodes.begin(), small.nodes.end(), reshape_instead_of_view);
  }
  keep_copies(small, analysis.graph());
  return small;
}

program::Program cut_program(const Analysis& analysis, const Cut& cut) {
  program::Program small(cut_graph(analysis, cut));
  program::check_shapes(small);
  return small;
}

}  // namespace prunex::channels
