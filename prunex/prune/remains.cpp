#include "prunex/prune/remains.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

namespace prunex::prune {
namespace {

using program::Graph;
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
    TORCH_CHECK(found != cut.tensors.end(), "[prune] the cut lacks '", value.weight, "'");
    const auto same = [](const program::Extent& extent, int64_t size) { return extent.factor == size; };
    TORCH_CHECK(std::equal(value.shape.begin(), value.shape.end(), found->second.shape.begin(),
                           found->second.shape.end(), same),
                "[prune] the cut is of another '", value.weight, "' than the program's");
  }
}

/// Every axis that loses something must carry units.
void check_axes(const std::vector<Member>& members, const Cut& cut) {
  std::set<std::pair<std::string, int64_t>> labelled;
  for (const Member& member : members) labelled.emplace(member.tensor, member.axis);
  for (const auto& [name, tensor] : cut.tensors) {
    for (const auto& [axis, kept] : tensor.kept) {
      TORCH_CHECK(labelled.count({name, axis}) > 0, "[prune] axis ", axis, " of '", name,
                  "' has no units that can be removed");
    }
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
    TORCH_CHECK(unit != kFixed, "[prune] position ", position, " of axis ", member.axis, " of '", member.tensor,
                "' is fixed");
    const int32_t reason = axes_.units().reason(unit);
    TORCH_CHECK(reason == kFree, "[prune] position ", position, " of axis ", member.axis, " of '", member.tensor,
                "' cannot be removed: ", axes_.reason(reason));
    removed_[axes_.units().find(unit)] = true;
  }
}

void Remains::check(const Member& member, const TensorCut& cut) const {
  for (size_t position = 0; position < member.labels->size(); ++position) {
    const bool kept = keeps(cut, member.axis, static_cast<int64_t>(position));
    TORCH_CHECK(kept != is_removed((*member.labels)[position]), "[prune] the cut keeps position ", position,
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
  TORCH_CHECK(begin >= 0 && begin <= end && end <= static_cast<int64_t>(labels->size()), "[prune] positions ", begin,
              " to ", end, " of an axis of ", labels->size());
  return std::count_if(labels->begin() + begin, labels->begin() + end, [&](Unit unit) { return !is_removed(unit); });
}

program::Shape Remains::shape(program::ValueId value) const {
  program::Shape shape = axes_.shape(value);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const Labels labels = axes_.peek(value, static_cast<int64_t>(axis));
    if (labels != nullptr) shape[axis].factor = count(labels, 0, static_cast<int64_t>(labels->size()));
  }
  return shape;
}

}  // namespace prunex::prune
