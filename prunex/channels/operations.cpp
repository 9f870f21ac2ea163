#include "prunex/channels/operations.h"

namespace prunex::channels {

void elementwise_rule(Axes& axes, const Node& node) {
  const ValueId output = node.outputs[0];
  const std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    axes.set(output, axis, broadcast(axes, values, output, axis));
  }
}

namespace {

/// Another tensor says what type the first becomes.
void type_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  for (ValueId value : tensor_inputs(axes.graph(), node)) axes.pass_by(value);
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) axes.set(node.outputs[0], axis, axes.labels(input, axis));
}

/// Batch and channels stay, the axes behind them, as many as the operation's name says, are combined.
void pooling_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor_inputs(axes.graph(), node).at(0);
  const char dimensions = node.target.at(node.target.find_first_of("123"));
  if (axes.rank(input) != 2 + dimensions - '0') {
    return axes.freeze_inputs(node, "without a batch axis has no rule");
  }
  for (ValueId output : node.outputs) {
    for (const int64_t axis : {0, 1}) axes.set(output, axis, axes.labels(input, axis));
  }
  for (int64_t axis = 2; axis < axes.rank(input); ++axis) axes.freeze(input, axis, "combines positions of this axis");
}

/// One slope per channel, or one for all.
void prelu_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), slope = node.tensor("weight");
  const bool shared = axes.rank(slope) == 0 || axes.shape(slope)[0].factor == 1;
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    const Labels labels = axes.labels(input, axis);
    axes.set(node.outputs[0], axis, axis == 1 && !shared ? axes.tie(labels, slope, 0) : labels);
  }
}

/// The axes of the argument "dim", all of them if there is none.
std::vector<bool> marked_axes(const Axes& axes, const Node& node, ValueId input) {
  const std::vector<int64_t> list = node.integers("dim");
  std::vector<bool> marked(axes.rank(input), list.empty());
  for (int64_t axis : list) marked.at(from_front(axis, axes.rank(input))) = true;
  return marked;
}

/// Zeros change nothing: of a sum, and of a norm whose order is above zero (2, if none is given).
bool ignores_zeros(const Node& node) {
  if (node.target.find("norm") == std::string::npos) return node.target.starts_with("aten::sum");
  const Argument* order = node.find(node.target == "aten::linalg_vector_norm" ? "ord" : "p");
  if (order == nullptr || order->literal.isNone()) return true;
  return order->literal.isScalar() && order->literal.toScalar().toDouble() > 0;
}

/// Positions of the axis are told by their numbers.
bool gives_positions(const Axes& axes, const Node& node) {
  if (node.target.starts_with("aten::arg")) return true;
  const bool both =
      node.target == "aten::max.dim" || node.target == "aten::min.dim" || node.target == "aten::median.dim";
  return both && axes.is_used(node.outputs.at(1));
}

/// What is averaged over depends on all its positions; the other axes pass.
void reduction_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  const std::vector<bool> reduced = marked_axes(axes, node, input);
  const bool keep = node.boolean("keepdim", false);
  int64_t to = 0;
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (reduced[axis] && gives_positions(axes, node)) {
      axes.freeze(input, axis, "gives positions of this axis");
    } else if (reduced[axis] && ignores_zeros(node)) {
      sum_over(axes, input, axis);
    } else if (reduced[axis]) {
      axes.take_statistics(axes.labels(input, axis), "combines positions of this axis");
    }
    for (ValueId output : node.outputs) {
      if (!reduced[axis] && output != kNoValue) axes.set(output, to, axes.labels(input, axis));
    }
    to += keep || !reduced[axis];
  }
}

/// Positions of the axis depend on those before them, or change places; the other axes pass.
void order_rule(Axes& axes, const Node& node) {
  const std::vector<ValueId> inputs = tensor_inputs(axes.graph(), node);  // of diff also what it puts before and behind
  const int64_t rank = axes.rank(inputs.at(0)), ordered = from_front(node.integer("dim", -1), rank);
  for (const ValueId input : inputs) axes.freeze(input, ordered, "orders positions of this axis");
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (axis == ordered) continue;
    Labels labels = axes.labels(inputs[0], axis);
    for (size_t i = 1; i < inputs.size(); ++i) labels = axes.tie(labels, inputs[i], axis);
    for (ValueId output : node.outputs) {
      if (output != kNoValue) axes.set(output, axis, labels);
    }
  }
}

/// The result keeps its shape, but every position of the axis depends on all.
void softmax_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  const std::vector<bool> normalized = marked_axes(axes, node, input);
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (normalized[axis]) axes.freeze(input, axis, "normalizes over this axis");
    axes.set(node.outputs[0], axis, axes.labels(input, axis));
  }
}

/// Asks for the extent of one axis as a number.
void size_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  axes.pass_by(input);
  axes.freeze(input, from_front(node.integer("dim", 0), axes.rank(input)), "asks for the extent of this axis");
}

/// Numbers have no axes.
void number_rule(Axes&, const Node&) {}

constexpr std::string_view kDecomposed = "layers are cut as torch.export.export gives them, not decomposed";
constexpr std::string_view kGathers = "what it gives depends on all positions of an axis";
constexpr std::string_view kMoves = "where it moves positions to is not followed";
constexpr std::string_view kOwnSizes = "its numbers are not widths that go";

const Operation kOperations[] = {
    // layers with weights
    {.names = "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding convolution conv_transpose1d "
              "conv_transpose2d.input conv_transpose3d.input",
     .rule = convolution_rule,
     .rewrite = rewrite_groups,
     .zero = Zero::kMade,
     .weights = WeightKind::kConvolution,
     .counted = Counted::kConvolution},
    {.names = "linear",
     .rule = linear_rule,
     .zero = Zero::kMade,
     .weights = WeightKind::kLinear,
     .counted = Counted::kLinear},
    {.names = "embedding", .rule = embedding_rule, .zero = Zero::kMade, .weights = WeightKind::kEmbedding},
    {.names = "lstm.input gru.input rnn_tanh.input rnn_relu.input",
     .rule = recurrent_rule,
     .zero = Zero::kStates,
     .weights = WeightKind::kRecurrent},
    {.names = "_weight_norm",
     .rule = weight_norm_rule,
     .zero = Zero::kFirst,
     .lacks = "a direction's size says nothing of its layer's outputs"},
    {.names = "prelu",
     .rule = prelu_rule,
     .zero = Zero::kFirst,
     .counted = Counted::kActivation,
     .lacks = "a slope says nothing of how much its channel matters"},
    // norms
    {.names = "batch_norm",
     .rule = batch_norm_rule,
     .zero = Zero::kScaled,
     .weights = WeightKind::kBatchNorm,
     .counted = Counted::kNorm},
    {.names = "instance_norm",
     .rule = batch_norm_rule,
     .zero = Zero::kScaled,
     .weights = WeightKind::kOtherNorm,
     .counted = Counted::kNorm},
    {.names = "layer_norm",
     .rule = layer_norm_rule,
     .rewrite = rewrite_normalized_shape,
     .zero = Zero::kScaled,
     .weights = WeightKind::kLayerNorm,
     .counted = Counted::kNorm},
    {.names = "rms_norm",
     .rule = layer_norm_rule,
     .rewrite = rewrite_normalized_shape,
     .zero = Zero::kScaled,
     .weights = WeightKind::kOtherNorm},
    {.names = "group_norm",
     .rule = group_norm_rule,
     .rewrite = rewrite_norm_groups,
     .zero = Zero::kScaled,
     .weights = WeightKind::kOtherNorm,
     .counted = Counted::kNorm},
    // products of tensors
    {.names = "matmul bmm mm", .rule = matmul_rule, .multiplies = true, .weights = WeightKind::kFactor},
    {.names = "addmm baddbmm", .rule = matmul_rule, .weights = WeightKind::kFactor},
    {.names = "einsum", .rule = einsum_rule, .views = true, .multiplies = true, .weights = WeightKind::kFactor},
    {.names = "scaled_dot_product_attention",
     .rule = attention_rule,
     .rewrite = rewrite_scale,
     .multiplies = true,
     .lacks = "its factors are computed"},
    {.names = "mv dot outer addmv cosine_similarity", .lacks = kGathers},
    // element by element; zero of zero
    {.names = "relu relu_ gelu gelu_ elu elu_ leaky_relu leaky_relu_",
     .rule = elementwise_rule,
     .zero = Zero::kFirst,
     .counted = Counted::kActivation},
    {.names = "relu6 relu6_ silu silu_ hardswish hardswish_ celu celu_ tanh tanh_ mish mish_ selu selu_ hardshrink "
              "softshrink abs neg expm1 log1p sqrt square sin tan asin atan sinh erf sign sgn ceil floor round trunc "
              "frac abs_ neg_ sqrt_ square_ dropout_ feature_dropout_",
     .rule = elementwise_rule,
     .zero = Zero::kFirst},
    {.names =
         "dropout feature_dropout contiguous to.dtype to.device to.dtype_layout _to_copy clone detach detach_ alias "
         "lift_fresh_copy",
     .rule = elementwise_rule,
     .zero = Zero::kFirst,
     .views = true},
    {.names = "expand_as", .rule = elementwise_rule, .zero = Zero::kBroadcast, .views = true},
    {.names = "type_as", .rule = type_rule, .zero = Zero::kFirst, .views = true},
    {.names = "div.Tensor div_.Tensor div.Scalar div_.Scalar div.Tensor_mode div.Scalar_mode",
     .rule = elementwise_rule,
     .zero = Zero::kBroadcast,
     .multiplies = true},
    {.names = "floor_divide floor_divide.Scalar remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar",
     .rule = elementwise_rule,
     .zero = Zero::kBroadcast},
    {.names = "add.Tensor add_.Tensor add.Scalar add_.Scalar sub.Tensor sub_.Tensor sub.Scalar sub_.Scalar maximum "
              "minimum fmax fmin hypot",
     .rule = elementwise_rule,
     .zero = Zero::kBoth},
    {.names = "mul.Tensor mul_.Tensor mul.Scalar mul_.Scalar",
     .rule = elementwise_rule,
     .zero = Zero::kAny,
     .multiplies = true},
    {.names = "zero_ zeros_like", .rule = elementwise_rule, .zero = Zero::kAlways},
    // element by element; something else of zero
    {.names = "hardtanh_", .rule = elementwise_rule, .counted = Counted::kActivation},
    {.names = "hardtanh sigmoid sigmoid_ hardsigmoid hardsigmoid_ softplus log_sigmoid threshold threshold_ clamp "
              "clamp_ clamp_min clamp_max clamp.Tensor clamp_min.Tensor clamp_max.Tensor exp log log2 log10 rsqrt "
              "reciprocal cos acos cosh atan2 nan_to_num pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar pow_.Scalar "
              "rsub.Tensor rsub.Scalar addcmul addcdiv addcmul_ addcdiv_ exp_ rsqrt_ reciprocal_ clamp_min_ clamp_max_ "
              "erfc exp2 logit logaddexp xlogy.Tensor copysign.Tensor heaviside copy_ eq.Scalar eq.Tensor ne.Scalar "
              "ne.Tensor gt.Scalar "
              "gt.Tensor ge.Scalar ge.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor isnan isinf isfinite logical_not "
              "logical_and logical_or logical_xor bitwise_not bitwise_and.Tensor bitwise_or.Tensor where.self "
              "where.ScalarSelf where.ScalarOther masked_fill.Scalar masked_fill_.Scalar masked_fill.Tensor "
              "masked_fill_.Tensor fill_.Scalar fill_.Tensor bernoulli bernoulli_.float ones_like full_like empty_like",
     .rule = elementwise_rule},
    {.names = "alpha_dropout", .rule = elementwise_rule, .views = true},
    {.names = "lerp.Scalar lerp.Tensor", .rule = elementwise_rule, .lacks = "its weight is a share, not a layer's"},
    // over the axes behind the channels
    {.names = "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
              "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d",
     .rule = pooling_rule,
     .zero = Zero::kFirst,
     .counted = Counted::kPool},
    {.names = "adaptive_max_pool1d adaptive_max_pool3d upsample_nearest1d.vec upsample_nearest2d.vec "
              "upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec "
              "upsample_trilinear3d.vec _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec "
              "_upsample_nearest_exact3d.vec _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec",
     .rule = pooling_rule,
     .zero = Zero::kFirst},
    // over an axis
    {.names = "mean mean.dim sum sum.dim_IntList amax amin prod prod.dim_int std std.dim std.correction var var.dim "
              "var.correction var_mean.dim var_mean.correction std_mean.dim std_mean.correction linalg_vector_norm "
              "norm.Scalar norm.ScalarOpt_dim",
     .rule = reduction_rule,
     .zero = Zero::kFirst},
    {.names = "max max.dim min min.dim median median.dim argmax argmin any any.dim all all.dim logsumexp",
     .rule = reduction_rule},
    {.names = "softmax.int log_softmax.int", .rule = softmax_rule},
    {.names = "cumsum cumprod logcumsumexp topk sort argsort diff", .rule = order_rule},
    // other axes of the same elements
    {.names = "view reshape", .rule = reshape_rule, .rewrite = rewrite_sizes, .zero = Zero::kFirst, .views = true},
    {.names = "unflatten.int", .rule = reshape_rule, .rewrite = rewrite_unflatten, .zero = Zero::kFirst, .views = true},
    {.names = "squeeze squeeze.dim squeeze.dims",
     .rule = reshape_rule,
     .rewrite = rewrite_squeeze,
     .zero = Zero::kFirst,
     .views = true},
    {.names = "flatten.using_ints ravel unsqueeze", .rule = reshape_rule, .zero = Zero::kFirst, .views = true},
    {.names = "view_as reshape_as", .rule = reshape_as_rule, .zero = Zero::kFirst, .views = true},
    {.names = "permute movedim.int movedim.intlist transpose.int swapaxes mT adjoint matrix_H t numpy_T",
     .rule = reorder_rule,
     .zero = Zero::kFirst,
     .views = true},
    {.names = "cat", .rule = cat_rule, .zero = Zero::kJoined},
    {.names = "stack", .rule = stack_rule, .zero = Zero::kJoined},
    {.names = "slice.Tensor narrow", .rule = slice_rule, .rewrite = rewrite_slice, .zero = Zero::kFirst, .views = true},
    {.names = "chunk split.Tensor split_with_sizes tensor_split.sections tensor_split.indices",
     .rule = split_rule,
     .rewrite = rewrite_split,
     .zero = Zero::kFirst,
     .views = true},
    {.names = "select.int", .rule = select_rule, .zero = Zero::kFirst, .views = true},
    {.names = "unbind.int", .rule = unbind_rule, .zero = Zero::kFirst, .views = true},
    {.names = "index.Tensor", .rule = index_rule},
    {.names = "roll", .rule = roll_rule, .zero = Zero::kFirst},
    {.names = "expand", .rule = expand_rule, .rewrite = rewrite_expand, .zero = Zero::kBroadcast, .views = true},
    {.names = "repeat", .rule = repeat_rule, .zero = Zero::kFirst},
    {.names = "repeat_interleave.self_int", .rule = repeat_interleave_rule, .zero = Zero::kFirst},
    {.names = "pad constant_pad_nd", .rule = pad_rule},
    {.names = "glu", .rule = glu_rule, .zero = Zero::kFirst},
    {.names = "pixel_shuffle", .rule = pixel_shuffle_rule, .zero = Zero::kFirst, .views = true},
    {.names = "pixel_unshuffle", .rule = pixel_unshuffle_rule, .zero = Zero::kFirst, .views = true},
    {.names = "channel_shuffle", .rule = channel_shuffle_rule, .zero = Zero::kFirst, .views = true, .lacks = kOwnSizes},
    {.names = "hstack vstack index_select gather flip unfold im2col col2im tile tril triu max_unpool2d grid_sampler",
     .lacks = kMoves},
    // tensors of a given size
    {.names = "zeros new_zeros", .rule = source_rule, .rewrite = rewrite_sizes, .zero = Zero::kAlways},
    {.names = "ones full empty.memory_format new_ones new_full new_empty",
     .rule = source_rule,
     .rewrite = rewrite_sizes},
    {.names = "arange arange.start arange.start_step linspace meshgrid meshgrid.indexing affine_grid_generator "
              "scalar_tensor one_hot",
     .lacks = "its positions are all different"},
    {.names = "_native_batch_norm_legit_no_training native_layer_norm native_group_norm native_dropout _softmax "
              "_log_softmax _adaptive_avg_pool2d max_pool2d_with_indices _unsafe_view upsample_nearest2d "
              "upsample_bilinear2d",
     .lacks = kDecomposed},
    // sizes as numbers
    {.names = "sym_size.int", .rule = size_rule},
    {.names = "sym::mul sym::add sym::sub sym::floordiv", .rule = number_rule},
};

const program::RowsByName<Operation>& rows() {
  static const program::RowsByName by_name(kOperations);
  return by_name;
}

}  // namespace

const Operation& operation_of(const std::string& target) {
  return rows().of(target);
}

size_t count_operations() {
  return rows().all().size();
}

}  // namespace prunex::channels
