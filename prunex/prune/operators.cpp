#include "prunex/prune/operators.h"

#include <algorithm>
#include <unordered_map>

#include "prunex/prune/arguments.h"
#include "prunex/prune/layer_rules.h"
#include "prunex/prune/shape_rules.h"

namespace prunex::prune {
namespace {

using program::Node;
using program::ValueId;

/// Values before weights, so that a weight adopts the labels of what it meets.
std::vector<ValueId> operands(const Axes& axes, const Node& node) {
  std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  std::stable_partition(values.begin(), values.end(), [&](ValueId value) { return !axes.is_weight(value); });
  return values;
}

/// Axes are counted from the back, as broadcasting does; an operand of extent 1 is copied and ties nothing.
void elementwise_rule(Axes& axes, const Node& node) {
  const ValueId output = node.outputs[0];
  const std::vector<ValueId> values = operands(axes, node);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    Labels labels;
    bool first = true;
    for (ValueId value : values) {
      const int64_t own = axis - (axes.rank(output) - axes.rank(value));
      if (own < 0 || axes.shape(value)[own] != axes.shape(output)[axis]) continue;
      labels = first ? axes.labels(value, own) : axes.tie(labels, value, own);
      first = false;
    }
    axes.set(output, axis, labels);
  }
}

/// Batch and channels stay, the axes behind them are combined.
void pooling_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor_inputs(axes.graph(), node).at(0);
  if (axes.shape(input).empty() || !axes.shape(input)[0].per_image) {
    return axes.freeze_inputs(node, "without a batch axis has no rule");
  }
  for (ValueId output : node.outputs) axes.set(output, 1, axes.labels(input, 1));
  for (int64_t axis = 2; axis < axes.rank(input); ++axis) axes.freeze(input, axis, "combines positions of this axis");
}

/// One slope per channel, or one for all.
void prelu_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self"), slope = tensor(node, "weight");
  const bool shared = axes.rank(slope) == 0 || axes.shape(slope)[0].factor == 1;
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    const Labels labels = axes.labels(input, axis);
    axes.set(node.outputs[0], axis, axis == 1 && !shared ? axes.tie(labels, slope, 0) : labels);
  }
}

/// The axes of the argument "dim", all of them if there is none.
std::vector<bool> marked_axes(const Axes& axes, const Node& node, ValueId input) {
  const std::vector<int64_t> list = integers(node, "dim");
  std::vector<bool> marked(axes.rank(input), list.empty());
  for (int64_t axis : list) marked.at(from_front(axis, axes.rank(input))) = true;
  return marked;
}

/// What is averaged or summed over depends on all its positions; the other axes pass.
void reduction_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const std::vector<bool> reduced = marked_axes(axes, node, input);
  const bool keep = boolean(node, "keepdim", false);
  int64_t to = 0;
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (reduced[axis]) axes.freeze(input, axis, "combines positions of this axis");
    if (!reduced[axis]) axes.set(node.outputs[0], to, axes.labels(input, axis));
    to += keep || !reduced[axis];
  }
}

/// The result keeps its shape, but every position of the axis depends on all.
void softmax_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const std::vector<bool> normalized = marked_axes(axes, node, input);
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (normalized[axis]) axes.freeze(input, axis, "normalizes over this axis");
    axes.set(node.outputs[0], axis, axes.labels(input, axis));
  }
}

/// Asks for the extent of one axis as a number.
void size_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  axes.freeze(input, from_front(integer(node, "dim", 0), axes.rank(input)), "asks for the extent of this axis");
}

/// Makes a tensor or a number from nothing that has units.
void source_rule(Axes&, const Node&) {}

struct Family {
  Rule rule;
  std::vector<const char*> targets;
};

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {convolution_rule, {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv2d.padding", "aten::convolution"}},
      {transposed_convolution_rule,
       {"aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input"}},
      {linear_rule, {"aten::linear"}},
      {batch_norm_rule, {"aten::batch_norm", "aten::instance_norm"}},
      {prelu_rule, {"aten::prelu"}},
      {elementwise_rule,
       {"aten::relu",
        "aten::relu_",
        "aten::relu6",
        "aten::relu6_",
        "aten::hardtanh",
        "aten::hardtanh_",
        "aten::silu",
        "aten::silu_",
        "aten::hardswish",
        "aten::hardswish_",
        "aten::sigmoid",
        "aten::sigmoid_",
        "aten::hardsigmoid",
        "aten::hardsigmoid_",
        "aten::gelu",
        "aten::elu",
        "aten::elu_",
        "aten::leaky_relu",
        "aten::leaky_relu_",
        "aten::tanh",
        "aten::tanh_",
        "aten::mish",
        "aten::mish_",
        "aten::selu",
        "aten::selu_",
        "aten::softplus",
        "aten::clamp",
        "aten::clamp_min",
        "aten::abs",
        "aten::neg",
        "aten::exp",
        "aten::sqrt",
        "aten::square",
        "aten::pow.Tensor_Scalar",
        "aten::maximum",
        "aten::minimum",
        "aten::add.Tensor",
        "aten::add_.Tensor",
        "aten::sub.Tensor",
        "aten::sub_.Tensor",
        "aten::sub.Scalar",
        "aten::rsub.Scalar",
        "aten::mul.Tensor",
        "aten::mul_.Tensor",
        "aten::div.Tensor",
        "aten::div_.Tensor",
        "aten::add.Scalar",
        "aten::mul.Scalar",
        "aten::div.Scalar",
        "aten::dropout",
        "aten::dropout_",
        "aten::feature_dropout",
        "aten::feature_dropout_",
        "aten::bernoulli_.float",
        "aten::contiguous",
        "aten::to.dtype",
        "aten::clone",
        "aten::detach",
        "aten::alias"}},
      {pooling_rule,
       {"aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", "aten::avg_pool1d", "aten::avg_pool2d",
        "aten::avg_pool3d", "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d",
        "aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d",
        "aten::upsample_nearest2d.vec", "aten::upsample_bilinear2d.vec"}},
      {reduction_rule, {"aten::mean", "aten::mean.dim", "aten::sum", "aten::sum.dim_IntList", "aten::amax"}},
      {softmax_rule, {"aten::softmax.int", "aten::log_softmax.int"}},
      {reshape_rule,
       {"aten::view", "aten::reshape", "aten::flatten.using_ints", "aten::unflatten.int", "aten::squeeze",
        "aten::squeeze.dim", "aten::squeeze.dims", "aten::unsqueeze"}},
      {permute_rule, {"aten::permute"}},
      {transpose_rule, {"aten::transpose.int"}},
      {cat_rule, {"aten::cat"}},
      {slice_rule, {"aten::slice.Tensor", "aten::narrow"}},
      {select_rule, {"aten::select.int"}},
      {split_rule, {"aten::chunk", "aten::split.Tensor", "aten::split_with_sizes"}},
      {expand_rule, {"aten::expand"}},
      {pad_rule, {"aten::pad", "aten::constant_pad_nd"}},
      {size_rule, {"aten::sym_size.int"}},
      {source_rule, {"aten::empty.memory_format", "sym::mul", "sym::add", "sym::sub", "sym::floordiv"}},
  };
  return table;
}

std::unordered_map<std::string, Rule> by_target() {
  std::unordered_map<std::string, Rule> rules;
  for (const Family& family : families()) {
    for (const char* target : family.targets) rules.emplace(target, family.rule);
  }
  return rules;
}

}  // namespace

Rule find_rule(const std::string& target) {
  static const std::unordered_map<std::string, Rule> rules = by_target();
  const auto found = rules.find(target);
  return found == rules.end() ? nullptr : found->second;
}

Axes analyze(const program::Graph& graph) {
  Axes axes(graph);
  for (const Node& node : graph.nodes) {
    axes.enter(node);
    const Rule rule = find_rule(node.target);
    const bool used = !node.outputs.empty() && node.outputs[0] != program::kNoValue;
    if (rule != nullptr && used) {
      rule(axes, node);
    } else {
      axes.freeze_inputs(node, "has no rule");
    }
  }
  axes.freeze_outputs();
  return axes;
}

}  // namespace prunex::prune
