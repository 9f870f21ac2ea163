#include "prunex/prune/layer_rules.h"

#include <algorithm>

#include "prunex/prune/arguments.h"

namespace prunex::prune {
namespace {

using program::kNoValue;
using program::Node;
using program::ValueId;

constexpr int64_t kChannelAxis = 1;

/// Height and width of a convolution cannot carry units.
void freeze_positions(Axes& axes, ValueId input) {
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) {
    axes.freeze(input, axis, "slides over this axis");
  }
}

/// Position p of every block of `block` positions lives and dies with position p of the first.
void tie_equal_positions(Axes& axes, const Labels& labels, int64_t block) {
  if (labels == nullptr) return;
  for (size_t i = block; i < labels->size(); ++i) axes.tie((*labels)[i % block], (*labels)[i]);
}

Labels first(const Labels& labels, int64_t count) {
  if (labels == nullptr) return nullptr;
  return std::make_shared<std::vector<Unit>>(labels->begin(), labels->begin() + count);
}

/// Whole groups live and die: the rows of a group carry the unit of its input channels.
Labels tie_groups(Axes& axes, const Labels& input, int64_t groups, int64_t out) {
  if (input == nullptr) return nullptr;
  const auto in_block = static_cast<int64_t>(input->size()) / groups;
  const int64_t out_block = out / groups;
  auto rows = std::make_shared<std::vector<Unit>>(out);
  for (int64_t group = 0; group < groups; ++group) {
    const Unit unit = (*input)[group * in_block];
    for (int64_t i = 1; i < in_block; ++i) axes.tie(unit, (*input)[group * in_block + i]);
    std::fill_n(rows->begin() + group * out_block, out_block, unit);
  }
  return rows;
}

/// Input channels against columns; returns the labels of the rows.
Labels grouped_rows(Axes& axes, ValueId input, ValueId weight, int64_t groups) {
  const Labels channels = axes.labels(input, kChannelAxis);
  const int64_t out = axes.shape(weight)[0].factor;
  const int64_t in_block = axes.shape(weight)[1].factor;
  const int64_t out_block = out / groups;
  if (in_block == 1 || out_block == 1) {
    axes.tie(nullptr, weight, 1);
    return axes.tie(tie_groups(axes, channels, groups, out), weight, 0);
  }
  tie_equal_positions(axes, channels, in_block);
  axes.tie(first(channels, in_block), weight, 1);
  const Labels rows = axes.labels(weight, 0);
  tie_equal_positions(axes, rows, out_block);
  return rows;
}

void finish(Axes& axes, const Node& node, const Labels& channels) {
  const ValueId bias = tensor(node, "bias");
  axes.set(node.outputs[0], kChannelAxis, bias == kNoValue ? channels : axes.tie(channels, bias, 0));
}

bool is_batched(Axes& axes, const Node& node, ValueId input, ValueId weight) {
  if (axes.rank(input) == axes.rank(weight)) return true;
  axes.freeze_inputs(node, "without a batch axis has no rule");
  return false;
}

}  // namespace

void convolution_rule(Axes& axes, const Node& node) {
  if (boolean(node, "transposed", false)) return transposed_convolution_rule(axes, node);
  const ValueId input = tensor(node, "input"), weight = tensor(node, "weight");
  if (!is_batched(axes, node, input, weight)) return;
  freeze_positions(axes, input);
  const int64_t groups = integer(node, "groups", 1);
  if (groups > 1) return finish(axes, node, grouped_rows(axes, input, weight, groups));
  axes.tie(axes.labels(input, kChannelAxis), weight, 1);
  finish(axes, node, axes.labels(weight, 0));
}

void transposed_convolution_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input"), weight = tensor(node, "weight");
  if (!is_batched(axes, node, input, weight)) return;
  if (integer(node, "groups", 1) > 1) return axes.freeze_inputs(node, "with groups has no rule");
  freeze_positions(axes, input);
  axes.tie(axes.labels(input, kChannelAxis), weight, 0);
  finish(axes, node, axes.labels(weight, 1));
}

void linear_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input"), weight = tensor(node, "weight"), bias = tensor(node, "bias");
  const ValueId output = node.outputs[0];
  const int64_t last = axes.rank(input) - 1;
  for (int64_t axis = 0; axis < last; ++axis) axes.set(output, axis, axes.labels(input, axis));
  axes.tie(axes.labels(input, last), weight, 1);
  const Labels rows = axes.labels(weight, 0);
  axes.set(output, last, bias == kNoValue ? rows : axes.tie(rows, bias, 0));
}

void batch_norm_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input");
  Labels channels = axes.labels(input, kChannelAxis);
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const ValueId vector = tensor(node, name);
    if (vector != kNoValue) channels = axes.tie(channels, vector, 0);
  }
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) {
    axes.freeze(input, axis, "averages over this axis");
  }
  axes.set(node.outputs[0], kChannelAxis, channels);
}

}  // namespace prunex::prune
