#include "prunex/program/operations.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_set>

namespace prunex::program {
namespace {

// Operations that work on values alone: their results depend on nothing but their arguments, in-place ones write to
// what the program computed itself (Program's constructor), and every index is checked by ATen or by a guard.
struct Family {
  std::string_view why;
  std::string_view operations;  // separated by spaces, without "aten::"
};

constexpr Family kFamilies[] = {
    {"layers with weights",
     "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding convolution conv_transpose1d "
     "conv_transpose2d.input conv_transpose3d.input linear embedding lstm.input gru.input rnn_tanh.input "
     "rnn_relu.input _weight_norm prelu"},
    {"norms", "batch_norm instance_norm layer_norm rms_norm group_norm"},
    {"products of tensors",
     "matmul bmm mm mv dot outer addmm addmv baddbmm einsum scaled_dot_product_attention linalg_vector_norm "
     "norm.Scalar norm.ScalarOpt_dim cosine_similarity"},
    {"activations",
     "relu relu_ relu6 relu6_ hardtanh hardtanh_ silu silu_ hardswish hardswish_ sigmoid sigmoid_ hardsigmoid "
     "hardsigmoid_ gelu gelu_ elu elu_ celu celu_ leaky_relu leaky_relu_ tanh tanh_ mish mish_ selu selu_ softplus "
     "log_sigmoid threshold threshold_ hardshrink softshrink softmax.int log_softmax.int glu"},
    {"arithmetic by elements",
     "clamp clamp_ clamp_min clamp_max clamp.Tensor clamp_min.Tensor clamp_max.Tensor abs neg exp expm1 log log2 log10 "
     "log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan atan2 sinh cosh erf sign sgn ceil floor round "
     "trunc "
     "frac nan_to_num pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar maximum minimum add.Tensor add_.Tensor sub.Tensor "
     "sub_.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor rsub.Tensor add.Scalar add_.Scalar sub.Scalar "
     "sub_.Scalar rsub.Scalar mul.Scalar mul_.Scalar div.Scalar div_.Scalar addcmul addcdiv lerp.Scalar lerp.Tensor"},
    {"comparisons and masks",
     "eq.Scalar eq.Tensor ne.Scalar ne.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor lt.Scalar lt.Tensor le.Scalar "
     "le.Tensor isnan isinf logical_not logical_and logical_or logical_xor bitwise_not bitwise_and.Tensor "
     "bitwise_or.Tensor where.self where.ScalarSelf where.ScalarOther masked_fill.Scalar masked_fill_.Scalar "
     "masked_fill.Tensor masked_fill_.Tensor fill_.Scalar fill_.Tensor zero_ tril triu"},
    {"noise of training, and what mode.h makes of it in evaluation",
     "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout bernoulli bernoulli_.float"},
    {"copies and types",
     "contiguous to.dtype to.device to.dtype_layout _to_copy type_as clone detach detach_ alias lift_fresh_copy"},
    {"pooling and resizing",
     "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
     "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d.vec "
     "upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec "
     "upsample_bicubic2d.vec upsample_trilinear3d.vec"},
    {"sums, extremes and orders over axes",
     "mean mean.dim sum sum.dim_IntList prod prod.dim_int amax amin max max.dim min min.dim argmax argmin any any.dim "
     "all all.dim std.dim std.correction var.dim var.correction var_mean.correction logsumexp cumsum topk sort"},
    {"rearranging, by axes and positions that ATen checks",
     "view reshape flatten.using_ints unflatten.int squeeze squeeze.dim squeeze.dims unsqueeze permute transpose.int "
     "swapaxes t movedim.int movedim.intlist cat stack slice.Tensor narrow select.int index.Tensor index_select gather "
     "roll flip chunk split.Tensor split_with_sizes unbind.int unfold im2col col2im expand expand_as repeat tile "
     "repeat_interleave.self_int pad constant_pad_nd pixel_shuffle pixel_unshuffle channel_shuffle"},
    {"tensors of a given size",
     "zeros ones full empty.memory_format new_zeros new_ones new_full new_empty zeros_like ones_like full_like "
     "empty_like arange arange.start arange.start_step scalar_tensor one_hot"},
    {"what run_decompositions() makes of layers",
     "_native_batch_norm_legit_no_training native_layer_norm native_group_norm native_dropout _softmax _log_softmax "
     "_adaptive_avg_pool2d max_pool2d_with_indices _unsafe_view upsample_nearest2d upsample_bilinear2d"},
    {"sizes as numbers", "sym_size.int"},
};
constexpr const char* kOnSizes[] = {"sym::mul", "sym::add", "sym::sub", "sym::floordiv"};

const std::unordered_set<std::string>& operations() {
  static const auto listed = [] {
    std::unordered_set<std::string> all(std::begin(kOnSizes), std::end(kOnSizes));
    for (const auto& family : kFamilies) {
      std::istringstream names{std::string(family.operations)};
      for (std::string name; names >> name;) all.insert("aten::" + name);
    }
    return all;
  }();
  return listed;
}

// Elements of a tensor, for one image: more than any network of images has.
constexpr int64_t kMostElements = 1 << 28;
constexpr int64_t kMostSteps = 1 << 16;
constexpr double kMostScale = 64;

/// Arguments that are numbers of something, whatever the operation: where wrong ones end the process, or make a tensor
/// as large as a number in the file.
struct Numbers {
  std::string_view arguments;  // separated by spaces
  int64_t least, most;         // of each
  bool multiplied = false;     // together they are a number of elements
};
constexpr Numbers kOfSizes{"a b", -kMostElements, kMostElements};
constexpr Numbers kNumbers[] = {
    {"groups num_groups group chunks split_size num_layers upscale_factor downscale_factor", 1, kMostElements},
    {"stride dilation kernel_size", 1, kMostSteps},
    {"padding output_padding", 0, kMostSteps},
    {"pad", -kMostSteps, kMostSteps},
    {"size sizes shape", -1, kMostElements, true},
    {"repeats output_size input_size num_classes normalized_shape split_sizes", 0, kMostElements, true},
};

bool lists(std::string_view names, std::string_view name) {
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    if (names.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument(why);
}

/// The numbers that stand in the file; computed ones are left out.
std::vector<int64_t> numbers_of(const Argument& argument) {
  if (argument.kind == Argument::Kind::kLiteral && argument.literal.isInt()) return {argument.literal.toInt()};
  if (argument.kind == Argument::Kind::kLiteral && argument.literal.isIntList()) return argument.literal.toIntVector();
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < argument.values.size() && argument.kind == Argument::Kind::kInts; ++i) {
    if (argument.values[i] == kNoValue) numbers.push_back(argument.ints.at(i));
  }
  return numbers;
}

void check_numbers(const Argument& argument, const Numbers& allowed) {
  int64_t product = 1;
  for (const auto number : numbers_of(argument)) {
    if (number < allowed.least || number > allowed.most) {
      refuse(fmt::format("argument '{}': got {}, wanted {} to {}", argument.name, number, allowed.least, allowed.most));
    }
    if (allowed.multiplied && number > 0 && __builtin_mul_overflow(product, number, &product)) product = -1;
    if (product < 0 || (allowed.multiplied && product > kMostElements)) {
      refuse(fmt::format("argument '{}' makes more than {} elements", argument.name, kMostElements));
    }
  }
}

void check_scales(const Argument& argument) {
  if (!argument.literal.isDoubleList()) return;
  for (const double scale : argument.literal.toDoubleVector()) {
    if (!(scale > 0 && scale <= kMostScale)) {
      refuse(fmt::format("argument '{}': got {}, wanted above 0 to {}", argument.name, scale, kMostScale));
    }
  }
}

double scalar(const Node& node, const char* name, double otherwise) {
  const auto* argument = node.find(name);
  return argument && argument->literal.isScalar() ? argument->literal.toScalar().toDouble() : otherwise;
}

void check_range(const Node& node) {
  const double steps = (scalar(node, "end", 0) - scalar(node, "start", 0)) / scalar(node, "step", 1);
  if (!(steps <= static_cast<double>(kMostElements))) refuse(fmt::format("makes more than {} elements", kMostElements));
}

/// Rows are shared out among the groups.
void check_groups(const Graph& graph, const Node& node) {
  const auto *weight = node.find("weight"), *groups = node.find("groups");
  if (!weight || weight->kind != Argument::Kind::kValue || !groups || !groups->literal.isInt()) return;
  const auto& value = graph.values.at(weight->values.at(0));
  const int64_t count = groups->literal.toInt();
  const int64_t rows = value.shape.empty() ? 0 : value.shape[0].factor;
  if (rows >= count && rows % count == 0) return;
  refuse(fmt::format("{} groups do not divide the {} rows of '{}'", count, rows,
                     value.weight.empty() ? value.name : value.weight));
}

}  // namespace

void check_operation(const Graph& graph, const Node& node) {
  if (!operations().contains(node.target)) {
    refuse("is not among the operations that a program from a file may hold");
  }
  if (node.target.starts_with("aten::arange")) return check_range(node);
  if (node.target.starts_with("sym::")) {
    for (const auto& argument : node.arguments) check_numbers(argument, kOfSizes);
    return;
  }
  const bool tiles = node.target == "aten::tile";
  for (const auto& argument : node.arguments) {
    for (const auto& numbers : kNumbers) {
      if (lists(numbers.arguments, tiles && argument.name == "dims" ? "repeats" : argument.name)) {
        check_numbers(argument, numbers);
      }
    }
    if (argument.name == "scale_factors") check_scales(argument);
  }
  if (node.target.starts_with("aten::conv")) check_groups(graph, node);
}

std::vector<std::string> listed_operations() {
  return {operations().begin(), operations().end()};
}

}  // namespace prunex::program
