#include "prunex/prune/layer_rules.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "prunex/prune/arguments.h"
#include "prunex/prune/ties.h"

namespace prunex::prune {
namespace {

using program::kNoValue;
using program::Node;
using program::ValueId;

/// Height and width of a convolution cannot carry units.
void freeze_positions(Axes& axes, ValueId input, ValueId weight) {
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) {
    axes.freeze(input, axis, "slides over this axis");
    axes.freeze(weight, axis, "slides over this axis");
  }
}

/// Groups share out an axis.
int64_t block_of(int64_t extent, int64_t groups) {
  TORCH_CHECK(groups > 0 && extent >= groups && extent % groups == 0, "[prune] ", groups, " groups do not divide ",
              extent, " channels");
  return extent / groups;
}

/// Whole groups live and die: the rows of a group carry the unit of its input channels.
Labels tie_groups(Axes& axes, const Labels& input, int64_t groups, int64_t out) {
  if (input == nullptr) return nullptr;
  const int64_t in_block = block_of(static_cast<int64_t>(input->size()), groups);
  const int64_t out_block = block_of(out, groups);
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
  const int64_t out = axes.extent(weight, 0).factor;
  const int64_t in_block = axes.extent(weight, 1).factor;
  const int64_t out_block = block_of(out, groups);
  if (in_block == 1 || out_block == 1) {
    axes.tie(nullptr, weight, 1);
    return axes.tie(tie_groups(axes, channels, groups, out), weight, 0);
  }
  tie_equal_positions(axes, channels, in_block);
  axes.tie(range(channels, 0, in_block), weight, 1);
  const Labels rows = axes.made(weight, 0);
  tie_equal_positions(axes, rows, out_block);
  return rows;
}

Labels tile(const Labels& labels, int64_t times) {
  if (labels == nullptr) return nullptr;
  auto all = std::make_shared<std::vector<Unit>>();
  for (int64_t i = 0; i < times; ++i) all->insert(all->end(), labels->begin(), labels->end());
  return all;
}

/// Input channels lie on the rows; the columns of a transposed convolution are the output channels of every group.
Labels grouped_columns(Axes& axes, ValueId input, ValueId weight, int64_t groups) {
  const Labels channels = axes.tie(axes.labels(input, kChannelAxis), weight, 0);
  const int64_t in_block = block_of(axes.extent(weight, 0).factor, groups);
  const int64_t out_block = axes.extent(weight, 1).factor;
  if (in_block == 1 || out_block == 1) {
    axes.tie(nullptr, weight, 1);
    return tie_groups(axes, channels, groups, groups * out_block);
  }
  tie_equal_positions(axes, channels, in_block);
  return tile(axes.made(weight, 1), groups);
}

void finish(Axes& axes, const Node& node, const Labels& channels) {
  const ValueId bias = tensor(node, "bias");
  axes.set(node.outputs[0], kChannelAxis, bias == kNoValue ? channels : axes.tie(channels, bias, 0));
}

/// Layers of cells, one or two directions each.
class Recurrent {
 public:
  Recurrent(Axes& axes, const Node& node)
      : axes_(axes),
        params_(node.find("params")->values),
        states_(node.find("hx")->values),
        node_(node),
        each_(boolean(node, "has_biases", true) ? 4 : 2),
        directions_(boolean(node, "bidirectional", false) ? 2 : 1) {}

  void apply() {
    const ValueId input = tensor(node_, "input");
    Labels below = axes_.labels(input, axes_.rank(input) - 1);
    for (size_t first = 0; first < params_.size(); first += each_ * directions_) below = layer(first, below);
    for (ValueId state : states_) axes_.tie(hidden_, state, axes_.rank(state) - 1);
    for (ValueId output : node_.outputs) {
      if (output == kNoValue) continue;
      axes_.set(output, axes_.rank(output) - 1, output == node_.outputs[0] ? below : hidden_);
    }
  }

 private:
  /// The outputs of the directions stand behind one another.
  Labels layer(size_t first, const Labels& below) {
    auto joined = std::make_shared<std::vector<Unit>>();
    for (size_t direction = 0; direction < directions_; ++direction) {
      const Labels hidden = cell(first + direction * each_, below);
      if (hidden != nullptr) joined->insert(joined->end(), hidden->begin(), hidden->end());
    }
    return joined->empty() ? nullptr : Labels(joined);
  }

  /// A unit owns a row of every gate and a column of the recurrent weight. All cells keep their states in one tensor.
  Labels cell(size_t first, const Labels& below) {
    axes_.tie(below, params_.at(first), 1);
    const int64_t size = axes_.extent(params_.at(first + 1), 1).factor;
    const Labels rows = axes_.made(params_[first], 0);
    for (size_t i = 1; i < each_; ++i) axes_.tie(rows, params_.at(first + i), 0);
    tie_equal_positions(axes_, rows, size);
    const Labels hidden = range(rows, 0, size);
    axes_.tie(hidden, params_[first + 1], 1);
    hidden_ = hidden_ == nullptr ? hidden : axes_.tie(hidden_, hidden);
    return hidden;
  }

  Axes& axes_;
  const std::vector<ValueId>& params_;
  const std::vector<ValueId>& states_;
  const Node& node_;
  const size_t each_, directions_;
  Labels hidden_;
};

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
  freeze_positions(axes, input, weight);
  const int64_t groups = integer(node, "groups", 1);
  if (groups > 1) return finish(axes, node, grouped_rows(axes, input, weight, groups));
  axes.tie(axes.labels(input, kChannelAxis), weight, 1);
  finish(axes, node, axes.made(weight, 0));
}

void transposed_convolution_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input"), weight = tensor(node, "weight");
  if (!is_batched(axes, node, input, weight)) return;
  freeze_positions(axes, input, weight);
  const int64_t groups = integer(node, "groups", 1);
  if (groups > 1) return finish(axes, node, grouped_columns(axes, input, weight, groups));
  axes.tie(axes.labels(input, kChannelAxis), weight, 0);
  finish(axes, node, axes.made(weight, 1));
}

void linear_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "input"), weight = tensor(node, "weight"), bias = tensor(node, "bias");
  const ValueId output = node.outputs[0];
  const int64_t last = axes.rank(input) - 1;
  for (int64_t axis = 0; axis < last; ++axis) axes.set(output, axis, axes.labels(input, axis));
  axes.tie(axes.labels(input, last), weight, 1);
  const Labels rows = axes.made(weight, 0);
  axes.set(output, last, bias == kNoValue ? rows : axes.tie(rows, bias, 0));
}

void embedding_rule(Axes& axes, const Node& node) {
  const ValueId table = tensor(node, "weight"), indices = tensor(node, "indices");
  const ValueId output = node.outputs[0];
  axes.freeze(table, 0, "looks up positions of this axis");
  for (int64_t axis = 0; axis < axes.rank(indices); ++axis) axes.set(output, axis, axes.labels(indices, axis));
  axes.set(output, axes.rank(indices), axes.made(table, 1));
}

void weight_norm_rule(Axes& axes, const Node& node) {
  const ValueId direction = tensor(node, "v"), length = tensor(node, "g"), output = node.outputs[0];
  const int64_t kept = from_front(integer(node, "dim", 0), axes.rank(direction));
  for (int64_t axis = 2; axis < axes.rank(direction); ++axis)
    axes.freeze(direction, axis, "takes a norm over this axis");
  for (int64_t axis = 0; axis < axes.rank(direction); ++axis) {
    const Labels labels = axis == kept ? axes.made(direction, axis) : axes.labels(direction, axis);
    if (axis == kept && axes.rank(length) > kept) axes.tie(labels, length, kept);
    if (axis != kept) axes.take_statistics(labels, "takes a norm over this axis");
    axes.set(output, axis, labels);
  }
}

void recurrent_rule(Axes& axes, const Node& node) {
  const program::Argument* params = node.find("params");
  const int64_t cells = integer(node, "num_layers", 1) * (boolean(node, "bidirectional", false) ? 2 : 1);
  const int64_t each = boolean(node, "has_biases", true) ? 4 : 2;
  const bool known = params != nullptr && params->kind == program::Argument::Kind::kValues &&
                     static_cast<int64_t>(params->values.size()) == cells * each;
  if (!known) return axes.freeze_inputs(node, "with projections has no rule");
  Recurrent(axes, node).apply();
}

}  // namespace prunex::prune
