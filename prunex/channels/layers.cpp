#include "prunex/channels/operations.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace prunex::channels {
namespace {

constexpr int64_t kChannelAxis = 1;

/// Height and width of a convolution cannot carry units.
void freeze_positions(Axes& axes, ValueId input, ValueId weight) {
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) {
    axes.freeze(input, axis, "slides over this axis");
    axes.freeze(weight, axis, "slides over this axis");
  }
}

/// Groups share out an axis.
int64_t block_of(int64_t extent, int64_t groups) {
  TORCH_CHECK(groups > 0 && extent >= groups && extent % groups == 0, "[channels] ", groups, " groups do not divide ",
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
  expect_zeros(axes, channels, input, weight);
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
  expect_zeros(axes, channels, input, weight);
  return tile(axes.made(weight, 1), groups);
}

void finish(Axes& axes, const Node& node, const Labels& channels) {
  const ValueId bias = node.tensor("bias");
  axes.set(node.outputs[0], kChannelAxis, bias == kNoValue ? channels : axes.tie(channels, bias, 0));
  axes.set(node.outputs[0], 0, axes.labels(node.tensor("input"), 0));
}

/// Layers of cells, one or two directions each.
class Recurrent {
 public:
  Recurrent(Axes& axes, const Node& node)
      : axes_(axes),
        params_(node.find("params")->values),
        states_(node.find("hx")->values),
        node_(node),
        each_(node.boolean("has_biases", true) ? 4 : 2),
        directions_(node.boolean("bidirectional", false) ? 2 : 1) {}

  void apply() {
    const ValueId input = node_.tensor("input");
    freeze_others(input);
    for (ValueId state : states_) freeze_others(state);
    Labels below = axes_.labels(input, axes_.rank(input) - 1);
    for (size_t first = 0; first < params_.size(); first += each_ * directions_) below = layer(first, below);
    for (ValueId state : states_) axes_.tie(hidden_, state, axes_.rank(state) - 1);
    for (ValueId output : node_.outputs) {
      if (output == kNoValue) continue;
      axes_.set(output, axes_.rank(output) - 1, output == node_.outputs[0] ? below : hidden_);
    }
  }

 private:
  /// Steps, images, layers and directions.
  void freeze_others(ValueId value) {
    for (int64_t axis = 0; axis < axes_.rank(value) - 1; ++axis) axes_.freeze(value, axis, "steps over this axis");
  }

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

constexpr const char* kAverages = "takes statistics over this axis";

/// The channels of the input and of the tensors of one entry per channel. Sets the axes behind them, whose statistics
/// are taken.
Labels tie_channels(Axes& axes, const Node& node, ValueId input) {
  Labels channels = axes.labels(input, kChannelAxis);
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const ValueId vector = node.tensor(name);
    if (vector != kNoValue) channels = axes.tie(channels, vector, 0);
  }
  for (int64_t axis = kChannelAxis + 1; axis < axes.rank(input); ++axis) {
    const Labels positions = axes.labels(input, axis);
    axes.take_statistics(positions, kAverages);
    axes.set(node.outputs[0], axis, positions);
  }
  return channels;
}

}  // namespace

void convolution_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("input"), weight = node.tensor("weight");
  if (axes.rank(input) != axes.rank(weight)) return axes.freeze_inputs(node, "without a batch axis has no rule");
  if (is_computed(node, "groups")) return axes.freeze_inputs(node, "with a computed number of groups has no rule");
  freeze_positions(axes, input, weight);
  const bool transposed = program::is_transposed(node);
  const int64_t groups = node.integer("groups", 1);
  if (groups > 1) return finish(axes, node, (transposed ? grouped_columns : grouped_rows)(axes, input, weight, groups));
  expect_zeros(axes, axes.tie(axes.labels(input, kChannelAxis), weight, transposed ? 0 : 1), input, weight);
  finish(axes, node, axes.made(weight, transposed ? 1 : 0));
}

void linear_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("input"), weight = node.tensor("weight"), bias = node.tensor("bias");
  const ValueId output = node.outputs[0];
  const int64_t last = axes.rank(input) - 1;
  if (axes.rank(weight) != 2) return axes.freeze_inputs(node, "with a vector has no rule");
  for (int64_t axis = 0; axis < last; ++axis) axes.set(output, axis, axes.labels(input, axis));
  expect_zeros(axes, axes.tie(axes.labels(input, last), weight, 1), input, weight);
  const Labels rows = axes.made(weight, 0);
  axes.set(output, last, bias == kNoValue ? rows : axes.tie(rows, bias, 0));
}

void embedding_rule(Axes& axes, const Node& node) {
  const ValueId table = node.tensor("weight"), indices = node.tensor("indices");
  const ValueId output = node.outputs[0];
  axes.freeze(table, 0, "looks up positions of this axis");
  for (int64_t axis = 0; axis < axes.rank(indices); ++axis) axes.set(output, axis, axes.labels(indices, axis));
  axes.set(output, axes.rank(indices), axes.made(table, 1));
}

void weight_norm_rule(Axes& axes, const Node& node) {
  const ValueId direction = node.tensor("v"), length = node.tensor("g"), output = node.outputs[0];
  // -1 is not the last axis: one length for the whole weight
  const int64_t dim = node.integer("dim", 0), kept = dim == -1 ? -1 : from_front(dim, axes.rank(direction));
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
  const Argument* params = node.find("params");
  const int64_t cells = node.integer("num_layers", 1) * (node.boolean("bidirectional", false) ? 2 : 1);
  const int64_t each = node.boolean("has_biases", true) ? 4 : 2;
  const bool known = params != nullptr && params->kind == Argument::Kind::kValues &&
                     static_cast<int64_t>(params->values.size()) == cells * each;
  if (!known) return axes.freeze_inputs(node, "with projections has no rule");
  Recurrent(axes, node).apply();
}

void batch_norm_rule(Axes& axes, const Node& node) {
  axes.freeze(node.tensor("input"), 0, kAverages);
  axes.set(node.outputs[0], kChannelAxis, tie_channels(axes, node, node.tensor("input")));
}

void layer_norm_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("input");
  const int64_t first = axes.rank(input) - static_cast<int64_t>(node.integers("normalized_shape").size());
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    Labels labels = axes.labels(input, axis);
    for (const char* name : {"weight", "bias"}) {
      const ValueId scale = node.tensor(name);
      if (axis >= first && scale != kNoValue) labels = axes.tie(labels, scale, axis - first);
    }
    if (axis >= first) axes.take_statistics(labels, kAverages);
    axes.set(node.outputs[0], axis, labels);
  }
}

void group_norm_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("input");
  if (is_computed(node, "num_groups")) return axes.freeze_inputs(node, "with a computed number of groups has no rule");
  const Labels labels = tie_channels(axes, node, input);
  axes.set(node.outputs[0], 0, axes.labels(input, 0));
  axes.set(node.outputs[0], kChannelAxis, labels);
  if (labels == nullptr) return;
  const int64_t groups = node.integer("num_groups", 1), size = axes.extent(input, kChannelAxis).factor;
  const int64_t block = block_of(size, groups);
  if (block > 1 && axes.options().statistics) {
    tie_equal_positions(axes, labels, block);
    return axes.take_statistics(labels, kAverages);
  }
  for (size_t i = 0; i < labels->size(); ++i) axes.tie((*labels)[i - i % block], (*labels)[i]);
}

/// Groups have equal numbers of input channels, before and after.
void rewrite_groups(Node& node, const Remains& remains) {
  if (node.integer("groups", 1) == 1) return;
  const bool transposed = program::is_transposed(node);
  const int64_t channels = remains.after(transposed ? node.outputs[0] : node.tensor("input")).at(1).factor;
  const int64_t columns = remains.after(node.tensor("weight")).at(1).factor;
  if (columns > 0) node.set("groups", channels / columns);
}

/// Groups that lost all their channels go.
void rewrite_norm_groups(Node& node, const Remains& remains) {
  const ValueId input = node.tensor("input");
  const Labels labels = remains.labels(input, 1);
  if (labels == nullptr) return;
  const int64_t groups = node.integer("num_groups", 1),
                block = remains.before(input).at(1).factor / std::max<int64_t>(groups, 1);
  int64_t left = 0;
  for (int64_t group = 0; group < groups; ++group) {
    left += remains.count(labels, group * block, (group + 1) * block) > 0;
  }
  node.set("num_groups", left);
}

}  // namespace prunex::channels
