#include "prunex/prune/widths.h"

#include <unordered_map>

#include "prunex/prune/operators.h"

namespace prunex::prune {
namespace {

using program::Graph;
using program::ValueId;
using sparsity::Group;

constexpr int32_t kNoGroup = -1;

/// Which group the set of each unit belongs to, by the root of the set: read off one slice per group.
std::vector<int32_t> groups_of_units(const Axes& axes, const std::vector<Group>& groups) {
  std::map<std::pair<std::string, int64_t>, Labels> labels_of;
  for (const Member& member : axes.members()) labels_of[{member.tensor, member.axis}] = member.labels;
  std::vector<int32_t> group_of(axes.units().size(), kNoGroup);
  for (size_t group = 0; group < groups.size(); ++group) {
    const sparsity::Slice& slice = groups[group].slices.at(0);
    const std::vector<Unit>& labels = *labels_of.at({slice.tensor, slice.axis});
    const size_t count = slice.index.empty() ? static_cast<size_t>(groups[group].size) : slice.index.size();
    for (size_t i = 0; i < count; ++i) {
      const Unit unit = labels.at(slice.index.empty() ? i : slice.index[i]);
      group_of[axes.units().find(unit)] = static_cast<int32_t>(group);
    }
  }
  return group_of;
}

Width width_of(const std::vector<Unit>& labels, const Axes& axes, const std::vector<int32_t>& group_of,
               const std::vector<Group>& groups) {
  Width width;
  std::map<int32_t, int64_t> positions;
  for (Unit unit : labels) {
    const int32_t group = unit == kFixed ? kNoGroup : group_of[axes.units().find(unit)];
    if (group == kNoGroup) {
      ++width.fixed;
    } else {
      ++positions[group];
    }
  }
  for (const auto& [group, count] : positions) width.shares.emplace_back(group, count / groups[group].size);
  return width;
}

}  // namespace

Widths::Widths(const Graph& graph, const std::vector<Group>& groups, GroupOptions options) {
  const Axes axes = analyze(graph, options);
  const std::vector<int32_t> group_of = groups_of_units(axes, groups);
  std::unordered_map<const void*, size_t> known;
  ids_.resize(graph.values.size());
  for (size_t value = 0; value < graph.values.size(); ++value) {
    const program::Shape& shape = graph.values[value].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const Labels labels = axes.peek(static_cast<ValueId>(value), static_cast<int64_t>(axis));
      if (labels == nullptr) {
        ids_[value].push_back(widths_.size());
        widths_.push_back({.fixed = shape[axis].factor, .shares = {}});
        continue;
      }
      const auto [found, added] = known.emplace(labels.get(), widths_.size());
      if (added) widths_.push_back(width_of(*labels, axes, group_of, groups));
      ids_[value].push_back(found->second);
    }
  }
}

}  // namespace prunex::prune
