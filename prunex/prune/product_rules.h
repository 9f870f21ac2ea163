// Rules of products of tensors.
#pragma once

#include "prunex/prune/operators.h"

namespace prunex::prune {

/// matmul, bmm and mm: contracts the last axis of one with the last but one of the other. addmm adds to that.
void matmul_rule(Axes& axes, const program::Node& node);

/// Queries and keys are contracted over features; the axis of the keys is fixed. Axes before these two are heads.
void attention_rule(Axes& axes, const program::Node& node);

/// einsum: axes of one letter are one.
void einsum_rule(Axes& axes, const program::Node& node);

/// The axis is summed over: statistics, unless removed units add nothing.
void sum(Axes& axes, program::ValueId value, int64_t axis);

}  // namespace prunex::prune
