// How each of ATen's operations carries channels: a row of operations.cpp each. What running one needs is in
// program/operations.cpp.
#pragma once

#include <string>
#include <string_view>

#include "prunex/channels/axes.h"
#include "prunex/channels/roles.h"
#include "prunex/program/operations.h"
#include "prunex/sparsity/cut.h"

namespace prunex::channels {

/// What a cut leaves of the units of a program. Built only from a cut that removes whole units which may be removed,
/// everywhere they lie; any other throws c10::Error that names the tensor and why.
class Remains {
 public:
  Remains(const Axes& axes, const sparsity::Cut& cut);

  /// Surviving positions of all labels.
  std::vector<int64_t> kept(const Labels& labels) const;
  /// How many survive of labels[begin, end).
  int64_t count(const Labels& labels, int64_t begin, int64_t end) const;

  const Shape& before(ValueId value) const { return axes_.shape(value); }
  /// The extents of a value that are left; its recorded shape if none of its units is removed.
  Shape after(ValueId value) const;
  Labels labels(ValueId value, int64_t axis) const { return axes_.peek(value, axis); }
  const Axes& axes() const { return axes_; }

 private:
  void remove(const Member& member, const sparsity::TensorCut& cut);
  void check(const Member& member, const sparsity::TensorCut& cut) const;
  bool is_removed(Unit unit) const { return unit != kFixed && removed_[axes_.units().find(unit)]; }

  const Axes& axes_;
  std::vector<bool> removed_;  // by the root of each set
};

/// Ties the units of the node's inputs and weights and sets those of its outputs; an axis that is not set is fixed.
/// Sound for every argument: what a rule cannot follow it freezes.
using Rule = void (*)(Axes& axes, const Node& node);

/// Rewrites the numbers in a node, of the original graph, that are widths.
using Rewrite = void (*)(Node& node, const Remains& remains);

/// When the result of an operation is zero at the positions of removed units.
enum class Zero {
  kNever,
  kAlways,
  kMade,       ///< zero weights make zeros
  kStates,     ///< so do they, if the states are zero at first
  kScaled,     ///< a weight and a bias that are zero make zeros
  kFirst,      ///< if the first operand is
  kBroadcast,  ///< if the first operand is, on every axis that the units lie on
  kJoined,     ///< if all operands are
  kBoth,       ///< if both are, in the result's shape
  kAny,        ///< if one is, in the result's shape
};

/// How Torch-Pruning 1.6.1 counts it, of one image.
enum class Counted {
  kNothing,
  kConvolution,  ///< with its bias; transposed ones per output position
  kLinear,       ///< its bias once
  kNorm,         ///< its input, twice if it has weights
  kActivation,   ///< of modules: its output
  kPool,         ///< of modules: its input
};

/// Several operations that are alike.
struct Operation {
  std::string_view names;  ///< separated by spaces, "aten::" left out
  Rule rule = nullptr;     ///< nullptr: freezes what it touches
  Rewrite rewrite = nullptr;
  Zero zero = Zero::kNever;
  bool views = false;                       ///< its result may show the storage of its first operand
  bool multiplies = false;                  ///< what it joins are factors, as gates are
  WeightKind weights = WeightKind::kOther;  ///< what its weights are
  Counted counted = Counted::kNothing;
  std::string_view lacks{};  ///< why it has no rule, no rewriting of its numbers or no kind of weight
};

/// The row of "aten::conv2d"; an empty one if no row names it.
const Operation& operation_of(const std::string& target);

/// That rows name.
size_t count_operations();

// layers.cpp
/// Input channels lie on the columns of the weight, output channels begin at its rows; of a transposed convolution the
/// other way round. With groups, the cut must leave equal groups: either whole groups go (depthwise, or a single
/// channel on one side), or equal positions of every group.
void convolution_rule(Axes& axes, const Node& node);
void rewrite_groups(Node& node, const Remains& remains);
/// Contracts the last axis.
void linear_rule(Axes& axes, const Node& node);
/// Features begin at the columns of the table.
void embedding_rule(Axes& axes, const Node& node);
/// lstm, gru and rnn: removes hidden units from all gates, of all layers and directions alike, for these share the
/// tensors of the states.
void recurrent_rule(Axes& axes, const Node& node);
/// A weight given by lengths and directions.
void weight_norm_rule(Axes& axes, const Node& node);
/// batch_norm and instance_norm: weight, bias and statistics follow the channels.
void batch_norm_rule(Axes& axes, const Node& node);
/// layer_norm and rms_norm take statistics over their axes.
void layer_norm_rule(Axes& axes, const Node& node);
/// Whole groups go, which leaves the others exactly as they were; if statistics may change: equal positions of all.
void group_norm_rule(Axes& axes, const Node& node);
void rewrite_norm_groups(Node& node, const Remains& remains);

// matmuls.cpp
/// matmul, bmm and mm: contracts the last axis of one with the last but one of the other. addmm adds to that.
void matmul_rule(Axes& axes, const Node& node);
/// The tensors of such a call; `added` may be kNoValue.
struct Factors {
  ValueId left, right, added;
};
Factors factors_of(const Node& node);
/// Queries and keys are contracted over features; the axis of the keys is fixed. Axes before these two are heads.
void attention_rule(Axes& axes, const Node& node);
void rewrite_scale(Node& node, const Remains& remains);
/// einsum: axes of one letter are one.
void einsum_rule(Axes& axes, const Node& node);
/// Whether zeros in all weights on which the units of `labels` lie make them zero in the value. False is always safe.
bool vanishes(const Axes& axes, ValueId value, const Labels& labels);
/// An axis of these units is contracted between two values: statistics, unless one is zero where units are removed.
void expect_zeros(Axes& axes, const Labels& labels, ValueId a, ValueId b);
/// The axis is summed over: statistics, unless removed units add nothing.
void sum_over(Axes& axes, ValueId value, int64_t axis);

// operations.cpp
/// The axes of the output are those of the inputs, which are broadcast.
void elementwise_rule(Axes& axes, const Node& node);

// views.cpp
/// view, reshape, flatten, unflatten, squeeze, unsqueeze: factors the axes of input and output against each other.
/// An axis with units may be merged with fixed ones (each unit then owns several positions) and taken apart again.
/// Where it becomes several axes, one of them carries the units, and positions that agree on it are tied;
/// Axes::choose() says which, the largest first.
void reshape_rule(Axes& axes, const Node& node);
/// Into the shape of another tensor, with whose axes those of the result are tied.
void reshape_as_rule(Axes& axes, const Node& node);
void rewrite_sizes(Node& node, const Remains& remains);
void rewrite_expand(Node& node, const Remains& remains);
void rewrite_unflatten(Node& node, const Remains& remains);
void rewrite_squeeze(Node& node, const Remains& remains);
void rewrite_normalized_shape(Node& node, const Remains& remains);

// moves.cpp
/// From the sizes of other values: such a number cannot be rewritten.
bool is_computed(const Node& node, const std::string& argument);
/// permute, movedim, t, and transpose, of the last two axes unless it names others.
void reorder_rule(Axes& axes, const Node& node);
/// 0, 1, … rank - 1.
std::vector<int64_t> in_order(int64_t rank);
/// For each axis of the result the one of the input, of `rank` axes.
std::vector<int64_t> order_of(const Node& node, int64_t rank);
void cat_rule(Axes& axes, const Node& node);
/// slice and narrow.
void slice_rule(Axes& axes, const Node& node);
void rewrite_slice(Node& node, const Remains& remains);
/// chunk, split and tensor_split: each output owns a range of the axis.
void split_rule(Axes& axes, const Node& node);
void rewrite_split(Node& node, const Remains& remains);
/// Fix the axis that they take apart, pick from, move or add.
void select_rule(Axes& axes, const Node& node);
void unbind_rule(Axes& axes, const Node& node);
void stack_rule(Axes& axes, const Node& node);
void index_rule(Axes& axes, const Node& node);
void roll_rule(Axes& axes, const Node& node);
/// Axes that grow from extent 1 are copies, as many as they are tied to.
void expand_rule(Axes& axes, const Node& node);
void repeat_rule(Axes& axes, const Node& node);
void repeat_interleave_rule(Axes& axes, const Node& node);
/// Positions that are added to an axis are fixed.
void pad_rule(Axes& axes, const Node& node);
/// Each position of the first half is one with its gate.
void glu_rule(Axes& axes, const Node& node);
/// Units of upscale_factor^2 channels.
void pixel_shuffle_rule(Axes& axes, const Node& node);
void pixel_unshuffle_rule(Axes& axes, const Node& node);
/// Equal positions of all groups.
void channel_shuffle_rule(Axes& axes, const Node& node);
/// Makes a tensor whose positions are all alike.
void source_rule(Axes& axes, const Node& node);

}  // namespace prunex::channels
