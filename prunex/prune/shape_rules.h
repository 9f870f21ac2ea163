// Rules of operations that move, join and divide axes.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/prune/operators.h"

namespace prunex::prune {

void permute_rule(Axes& axes, const program::Node& node);
void transpose_rule(Axes& axes, const program::Node& node);
void cat_rule(Axes& axes, const program::Node& node);
/// slice and narrow.
void slice_rule(Axes& axes, const program::Node& node);
void select_rule(Axes& axes, const program::Node& node);

/// Fix the axis that they take apart or add.
void unbind_rule(Axes& axes, const program::Node& node);
void stack_rule(Axes& axes, const program::Node& node);
/// One index tensor picks positions of one axis, which is fixed.
void index_rule(Axes& axes, const program::Node& node);
void roll_rule(Axes& axes, const program::Node& node);

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

/// Axes that grow from extent 1 are copies, as many as they are tied to.
void expand_rule(Axes& axes, const program::Node& node);
void expand_as_rule(Axes& axes, const program::Node& node);
void repeat_rule(Axes& axes, const program::Node& node);
void repeat_interleave_rule(Axes& axes, const program::Node& node);

/// Positions that are added to an axis are fixed.
void pad_rule(Axes& axes, const program::Node& node);

/// Each position of the first half is one with its gate.
void glu_rule(Axes& axes, const program::Node& node);

/// Units of upscale_factor^2 channels.
void pixel_shuffle_rule(Axes& axes, const program::Node& node);
void pixel_unshuffle_rule(Axes& axes, const program::Node& node);

/// Equal positions of all groups.
void channel_shuffle_rule(Axes& axes, const program::Node& node);

/// Makes a tensor whose positions are all alike, or a number.
void source_rule(Axes& axes, const program::Node& node);

}  // namespace prunex::prune
