// Whether masks of a group, zeros in its parameters, do what a cut of it does.
#include "prunex/channels/masking.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prunex/channels/operations.h"

namespace prunex::channels {
namespace {

/// Of a power that is a number.
std::optional<double> exponent_of(const Node& node) {
  const program::Argument* exponent = node.operation() == "aten::pow" ? node.find("exponent") : nullptr;
  if (exponent == nullptr || !exponent->literal.isScalar()) return std::nullopt;
  return exponent->literal.toScalar().toDouble();
}

/// The inputs of a call that has an infinite slope at 0, where a gradient of 0 is not a number.
std::vector<ValueId> infinite_slope_at_zero(const Node& node) {
  const std::string name = node.operation();
  if (name == "aten::hypot") return {node.tensor("self"), node.tensor("other")};
  const auto exponent = exponent_of(node);
  const bool is_root = name == "aten::sqrt" || (exponent && *exponent > 0 && *exponent < 1);
  return is_root ? std::vector<ValueId>{node.tensor("self")} : std::vector<ValueId>{};
}

/// The input of a call that makes 0 infinite; kNoValue if there is none.
ValueId infinite_at_zero(const Node& node) {
  const std::string name = node.operation();
  static const std::set<std::string> of_divisor{"aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod"};
  static const std::set<std::string> of_one{"aten::reciprocal", "aten::rsqrt", "aten::log",
                                            "aten::log2",       "aten::log10", "aten::logit"};
  if (of_divisor.contains(name)) return node.tensor("other");
  if (name == "aten::addcdiv") return node.tensor("tensor2");
  if (of_one.contains(name)) return node.tensor("self");
  const program::Argument* computed = name == "aten::pow" ? node.find("exponent") : nullptr;
  if (computed != nullptr && computed->kind == program::Argument::Kind::kValue) return node.tensor("self");
  return exponent_of(node).value_or(0) < 0 ? node.tensor("self") : kNoValue;
}

class Masking {
 public:
  Masking(const Axes& axes, const std::vector<int32_t>& removable_of, std::vector<DependencyGroup>& groups)
      : axes_(axes), removable_of_(removable_of) {
    for (DependencyGroup& group : groups) {
      if (group.prunable) removable_.push_back(&group);
    }
  }

  void note_sums() {
    for (size_t root = 0; root < removable_of_.size(); ++root) {
      DependencyGroup* group = group_of(static_cast<Unit>(root));
      if (group != nullptr) group->summed |= axes_.units().has(static_cast<Unit>(root), Mark::kSummed);
    }
  }

  /// Masks have rows and columns.
  void note_late_axes(const WeightRoles& roles) {
    for (DependencyGroup* group : removable_) {
      for (const sparsity::Slice& slice : group->slices) {
        if (slice.axis <= sparsity::kChannels || !roles.contains(slice.tensor)) continue;
        refuse(*group, fmt::format("{} has them on axis {}, where there are no masks", slice.tensor, slice.axis));
      }
    }
  }

  void note(const Node& node) {
    const ValueId weight = is_layer(operation_of(node.target).weights) ? node.tensor("weight") : kNoValue;
    if (weight != kNoValue && !axes_.is_weight(weight)) {
      refuse_where(false, node, weight, "has a weight that is not 0 where the parameters are that it is made of");
    }
    if (const ValueId value = infinite_at_zero(node); value != kNoValue) {
      refuse_where(true, node, value, "would be infinite at 0");
    }
    for (const ValueId value : infinite_slope_at_zero(node)) {
      refuse_where(true, node, value, "has an infinite slope at 0");
    }
  }

 private:
  /// Groups whose zeros are zero in the value, or those of which they are not.
  void refuse_where(bool vanishing, const Node& node, ValueId value, const char* why) {
    for (int64_t axis = 0; axis < axes_.rank(value); ++axis) {
      const Labels labels = axes_.peek(value, axis);
      if (labels == nullptr || vanishes(axes_, value, labels) != vanishing) continue;
      for (const Unit unit : *labels) {
        DependencyGroup* group = unit == kFixed ? nullptr : group_of(axes_.units().find(unit));
        if (group != nullptr) refuse(*group, fmt::format("{} {}", program::describe(axes_.graph(), node), why));
      }
    }
  }

  DependencyGroup* group_of(Unit root) const {
    const int32_t position = removable_of_[static_cast<size_t>(root)];
    return position < 0 ? nullptr : removable_[static_cast<size_t>(position)];
  }

  /// The first reason counts.
  static void refuse(DependencyGroup& group, std::string why) {
    if (group.unmaskable.empty()) group.unmaskable = std::move(why);
  }

  const Axes& axes_;
  const std::vector<int32_t>& removable_of_;
  std::vector<DependencyGroup*> removable_;
};

}  // namespace

void note_masking(const Axes& axes, const WeightRoles& roles, const std::vector<int32_t>& removable_of,
                  std::vector<DependencyGroup>& groups) {
  Masking masking(axes, removable_of, groups);
  masking.note_sums();
  for (const Node& node : axes.graph().nodes) masking.note(node);
  masking.note_late_axes(roles);
}

}  // namespace prunex::channels
