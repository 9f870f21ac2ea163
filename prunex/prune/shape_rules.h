// Rules of operations that move, join and divide axes.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/prune/operators.h"

namespace prunex::prune {

/// view, reshape, flatten, unflatten, squeeze, unsqueeze: factors the axes of input and output against each other.
/// An axis with units may be merged with fixed ones (each unit then owns several positions) and taken apart again.
void reshape_rule(Axes& axes, const program::Node& node);

void permute_rule(Axes& axes, const program::Node& node);
void transpose_rule(Axes& axes, const program::Node& node);
void cat_rule(Axes& axes, const program::Node& node);
/// slice and narrow.
void slice_rule(Axes& axes, const program::Node& node);
void select_rule(Axes& axes, const program::Node& node);

/// chunk and split: each output owns a range of the axis.
void split_rule(Axes& axes, const program::Node& node);

/// What slice or narrow takes of an axis with `size` positions.
struct Range {
  int64_t start = 0;
  int64_t step = 1;
};
Range slice_range(const program::Node& node, int64_t size);

/// Extents of the outputs of chunk, split and split_with_sizes of an axis with `size` positions.
std::vector<int64_t> split_sizes(const program::Node& node, int64_t size);

/// Axes that grow from extent 1 are copies.
void expand_rule(Axes& axes, const program::Node& node);

/// Padding an axis fixes it.
void pad_rule(Axes& axes, const program::Node& node);

}  // namespace prunex::prune
