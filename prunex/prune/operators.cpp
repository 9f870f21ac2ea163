#include "prunex/prune/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "prunex/program/plan.h"
#include "prunex/prune/arguments.h"
#include "prunex/prune/layer_rules.h"
#include "prunex/prune/norm_rules.h"
#include "prunex/prune/product_rules.h"
#include "prunex/prune/reshape.h"
#include "prunex/prune/shape_rules.h"
#include "prunex/prune/ties.h"

namespace prunex::prune {
namespace {

using program::Node;
using program::ValueId;

void elementwise_rule(Axes& axes, const Node& node) {
  const ValueId output = node.outputs[0];
  const std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    axes.set(output, axis, broadcast(axes, values, output, axis));
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

/// What is averaged over depends on all its positions; the other axes pass.
void reduction_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const std::vector<bool> reduced = marked_axes(axes, node, input);
  const bool keep = boolean(node, "keepdim", false);
  int64_t to = 0;
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (reduced[axis] && node.target.starts_with("aten::sum")) {
      sum(axes, input, axis);
    } else if (reduced[axis]) {
      axes.take_statistics(axes.labels(input, axis), "combines positions of this axis");
    }
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

/// Numbers have no axes.
void number_rule(Axes&, const Node&) {}

struct Family {
  Rule rule;
  std::string_view operations;  // separated by spaces, without "aten::"
};

constexpr Family kFamilies[] = {
    {convolution_rule, "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding convolution"},
    {transposed_convolution_rule, "conv_transpose1d conv_transpose2d.input conv_transpose3d.input"},
    {linear_rule, "linear"},
    {embedding_rule, "embedding"},
    {recurrent_rule, "lstm.input gru.input rnn_tanh.input rnn_relu.input"},
    {weight_norm_rule, "_weight_norm"},
    {batch_norm_rule, "batch_norm instance_norm"},
    {layer_norm_rule, "layer_norm rms_norm"},
    {group_norm_rule, "group_norm"},
    {prelu_rule, "prelu"},
    {matmul_rule, "matmul bmm mm addmm baddbmm"},
    {attention_rule, "scaled_dot_product_attention"},
    {einsum_rule, "einsum"},
    {elementwise_rule,
     "relu relu_ relu6 relu6_ hardtanh hardtanh_ silu silu_ hardswish hardswish_ sigmoid sigmoid_ hardsigmoid "
     "hardsigmoid_ gelu gelu_ elu elu_ celu celu_ leaky_relu leaky_relu_ tanh tanh_ mish mish_ selu selu_ softplus "
     "log_sigmoid threshold threshold_"},
    {elementwise_rule,
     "clamp clamp_ clamp_min clamp_max abs neg exp log log1p sqrt rsqrt square reciprocal sin cos erf sign "
     "pow.Tensor_Scalar pow.Tensor_Tensor maximum minimum logical_not logical_and logical_or"},
    {elementwise_rule,
     "add.Tensor add_.Tensor sub.Tensor sub_.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor rsub.Tensor "
     "add.Scalar add_.Scalar sub.Scalar sub_.Scalar rsub.Scalar mul.Scalar mul_.Scalar div.Scalar div_.Scalar"},
    {elementwise_rule,
     "eq.Scalar eq.Tensor ne.Scalar ne.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor lt.Scalar lt.Tensor le.Scalar "
     "le.Tensor where.self masked_fill.Scalar masked_fill_.Scalar masked_fill.Tensor fill_.Scalar"},
    {elementwise_rule,
     "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout bernoulli_.float contiguous to.dtype to.device "
     "to.dtype_layout type_as clone detach detach_ alias lift_fresh_copy zeros_like ones_like full_like"},
    {pooling_rule,
     "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
     "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d.vec "
     "upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec "
     "upsample_bicubic2d.vec upsample_trilinear3d.vec"},
    {reduction_rule, "mean mean.dim sum sum.dim_IntList amax amin"},
    {softmax_rule, "softmax.int log_softmax.int"},
    {reshape_rule, "view reshape flatten.using_ints unflatten.int squeeze squeeze.dim squeeze.dims unsqueeze"},
    {permute_rule, "permute"},
    {transpose_rule, "transpose.int"},
    {cat_rule, "cat"},
    {stack_rule, "stack"},
    {slice_rule, "slice.Tensor narrow"},
    {select_rule, "select.int"},
    {index_rule, "index.Tensor"},
    {roll_rule, "roll"},
    {split_rule, "chunk split.Tensor split_with_sizes"},
    {unbind_rule, "unbind.int"},
    {expand_rule, "expand"},
    {expand_as_rule, "expand_as"},
    {repeat_rule, "repeat"},
    {repeat_interleave_rule, "repeat_interleave.self_int"},
    {pad_rule, "pad constant_pad_nd"},
    {glu_rule, "glu"},
    {pixel_shuffle_rule, "pixel_shuffle"},
    {pixel_unshuffle_rule, "pixel_unshuffle"},
    {channel_shuffle_rule, "channel_shuffle"},
    {size_rule, "sym_size.int"},
    {source_rule, "zeros ones full empty.memory_format new_zeros new_ones new_full new_empty"},
};

std::unordered_map<std::string, Rule> by_target() {
  std::unordered_map<std::string, Rule> rules;
  for (const Family& family : kFamilies) {
    std::istringstream operations{std::string(family.operations)};
    for (std::string name; operations >> name;) rules.emplace("aten::" + name, family.rule);
  }
  for (const char* target : {"sym::mul", "sym::add", "sym::sub", "sym::floordiv"}) rules.emplace(target, number_rule);
  return rules;
}

const std::unordered_map<std::string, Rule>& rules() {
  static const std::unordered_map<std::string, Rule> table = by_target();
  return table;
}

/// Recorded shapes are what a file says: rules look positions up by them.
void apply(Rule rule, Axes& axes, const Node& node) {
  try {
    rule(axes, node);
  } catch (const std::logic_error&) {  // a position that is not there, or a number that no vector is long
    throw std::invalid_argument(fmt::format("node {}: the shapes that are recorded do not fit its operation",
                                            program::describe(axes.graph(), node)));
  }
}

Axes apply_rules(const program::Graph& graph, GroupOptions options, const Choices& choices) {
  Axes axes(graph, options, choices);
  for (const Node& node : graph.nodes) {
    axes.enter(node);
    const Rule rule = find_rule(node.target);
    const bool used = !node.outputs.empty() && node.outputs[0] != program::kNoValue;
    if (rule != nullptr && (used || node.outputs.size() > 1)) {
      apply(rule, axes, node);
    } else {
      axes.freeze_inputs(node, "has no rule");
    }
  }
  axes.freeze_outputs();
  return axes;
}

/// How well a candidate carries the units of a split.
int merit(const Axes& axes, const Split& split) {
  const auto& labels = *split.labels;
  const auto is_head = [&](Unit unit) { return unit != kFixed && axes.units().is_head(unit); };
  const auto is_frozen = [&](Unit unit) { return unit == kFixed || axes.units().reason(unit) != kFree; };
  if (std::all_of(labels.begin(), labels.end(), is_frozen)) return 0;
  return std::any_of(labels.begin(), labels.end(), is_head) == axes.options().heads ? 2 : 1;
}

/// Tries the candidates of all splits at once, one after the other; each split keeps its first best.
class Search {
 public:
  /// False if nothing is left to try.
  bool advance(const Axes& axes) {
    bool any = false;
    for (const Split& split : axes.splits()) {
      const std::pair key(split.node, split.axis);
      Best& best = best_[key];
      const int reached = merit(axes, split);
      if (reached > best.merit) best = {reached, round_};
      const bool more = best.merit < kFullMerit && round_ + 1 < split.candidates;
      any |= more;
      next_[key] = more ? round_ + 1 : best.candidate;
    }
    ++round_;
    return any;
  }

  const Choices& choices() const { return next_; }

  bool settled_on(const Choices& choices) const {
    return std::all_of(next_.begin(), next_.end(), [&](const auto& item) {
      const auto found = choices.find(item.first);
      return item.second == (found == choices.end() ? 0 : found->second);
    });
  }

 private:
  static constexpr int kFullMerit = 2;
  struct Best {
    int merit = -1;
    size_t candidate = 0;
  };

  std::map<Choices::key_type, Best> best_;
  Choices next_;
  size_t round_ = 0;
};

}  // namespace

Rule find_rule(const std::string& target) {
  const auto found = rules().find(target);
  return found == rules().end() ? nullptr : found->second;
}

std::vector<std::string> operations_with_rules() {
  std::vector<std::string> operations;
  for (const auto& item : rules()) operations.push_back(item.first);
  return operations;
}

Axes analyze(const program::Graph& graph, GroupOptions options) {
  Search search;
  for (Choices choices;; choices = search.choices()) {
    Axes axes = apply_rules(graph, options, choices);
    const bool more = search.advance(axes);
    if (!more && search.settled_on(choices)) return axes;
    if (!more) return apply_rules(graph, options, search.choices());
  }
}

}  // namespace prunex::prune
