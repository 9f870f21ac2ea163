#include "prunex/prune/norm_rules.h"

#include <ATen/ATen.h>

#include "prunex/prune/arguments.h"
#include "prunex/prune/ties.h"

namespace prunex::prune {
namespace {

using program::kNoValue;
using program::Node;
using program::ValueId;

constexpr const char* kAverages = "takes statistics over this axis";

/// The channels of the input and of the tensors of one entry per channel.
Labels channels(Axes& axes, const Node& node, ValueId input) {
  Labels channels = axes.labels(input, kChannelAxis);
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const ValueId vector = tensor(node, name);
    if (vector != kNoValue) channels = axes.tie(channels, vector, 0);
  }
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) axes.freeze(input, axis, kAverages);
  return channels;
}

}  // namespace

void batch_norm_rule(Axes& axes, const Node& node) {
  axes.set(node.outputs[0], kChannelAxis, channels(axes, node, tensor(node, "input")));
}

void layer_norm_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input");
  const int64_t first = axes.rank(input) - static_cast<int64_t>(integers(node, "normalized_shape").size());
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    Labels labels = axes.labels(input, axis);
    for (const char* name : {"weight", "bias"}) {
      const ValueId scale = tensor(node, name);
      if (axis >= first && scale != kNoValue) labels = axes.tie(labels, scale, axis - first);
    }
    if (axis >= first) axes.take_statistics(labels, kAverages);
    axes.set(node.outputs[0], axis, labels);
  }
}

void group_norm_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input");
  const Labels labels = channels(axes, node, input);
  axes.set(node.outputs[0], kChannelAxis, labels);
  if (labels == nullptr) return;
  const int64_t groups = integer(node, "num_groups", 1), size = axes.extent(input, kChannelAxis).factor;
  TORCH_CHECK(groups > 0 && size >= groups && size % groups == 0, "[prune] ", groups, " groups do not divide ", size,
              " channels");
  const int64_t block = size / groups;
  if (block > 1 && axes.options().statistics) {
    tie_equal_positions(axes, labels, block);
    return axes.take_statistics(labels, kAverages);
  }
  for (size_t i = 0; i < labels->size(); ++i) axes.tie((*labels)[i - i % block], (*labels)[i]);
}

}  // namespace prunex::prune
