#include "prunex/program/operations.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace prunex::program {
namespace {

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
constexpr Numbers kNumbers[] = {
    {"groups num_groups group chunks split_size num_layers upscale_factor downscale_factor steps sections", 1,
     kMostElements},
    {"stride dilation kernel_size", 1, kMostSteps},
    {"padding output_padding", 0, kMostSteps},
    {"interpolation_mode padding_mode", 0, 2},
    {"pad", -kMostSteps, kMostSteps},
    {"size sizes shape", -1, kMostElements, true},
    {"repeats output_size input_size num_classes normalized_shape", 0, kMostElements, true},
    {"split_sizes", 0, kMostElements},
};

bool names_argument(std::string_view names, std::string_view name) {
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    if (names.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

[[noreturn]] void refuse_node(const std::string& why) {
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
      refuse_node(
          fmt::format("argument '{}': got {}, wanted {} to {}", argument.name, number, allowed.least, allowed.most));
    }
    if (allowed.multiplied && number > 0 && __builtin_mul_overflow(product, number, &product)) product = -1;
    if (product < 0 || (allowed.multiplied && product > kMostElements)) {
      refuse_node(fmt::format("argument '{}' makes more than {} elements", argument.name, kMostElements));
    }
  }
}

void check_scales(const Argument& argument) {
  if (!argument.literal.isDoubleList()) return;
  for (const double scale : argument.literal.toDoubleVector()) {
    if (!(scale > 0 && scale <= kMostScale)) {
      refuse_node(fmt::format("argument '{}': got {}, wanted above 0 to {}", argument.name, scale, kMostScale));
    }
  }
}

double scalar(const Node& node, const char* name, double otherwise) {
  const auto* argument = node.find(name);
  return argument && argument->literal.isScalar() ? argument->literal.toScalar().toDouble() : otherwise;
}

void check_range(const Graph&, const Node& node) {
  const double steps = (scalar(node, "end", 0) - scalar(node, "start", 0)) / scalar(node, "step", 1);
  if (!(steps <= static_cast<double>(kMostElements)))
    refuse_node(fmt::format("makes more than {} elements", kMostElements));
}

void check_arguments_as(const Node& node, const char* dims) {
  for (const auto& argument : node.arguments) {
    for (const auto& numbers : kNumbers) {
      if (names_argument(numbers.arguments, argument.name == "dims" ? dims : argument.name)) {
        check_numbers(argument, numbers);
      }
    }
    if (argument.name == "scale_factors") check_scales(argument);
  }
}

void check_arguments(const Graph&, const Node& node) {
  check_arguments_as(node, "dims");
}

void check_tile(const Graph&, const Node& node) {
  check_arguments_as(node, "repeats");
}

void check_sizes(const Graph&, const Node& node) {
  for (const auto& argument : node.arguments) check_numbers(argument, {"", -kMostElements, kMostElements});
}

/// Rows are shared out among the groups.
void check_convolution(const Graph& graph, const Node& node) {
  check_arguments(graph, node);
  const auto *weight = node.find("weight"), *groups = node.find("groups");
  if (!weight || weight->kind != Argument::Kind::kValue || !groups || !groups->literal.isInt()) return;
  const auto& value = graph.values.at(weight->values.at(0));
  const int64_t count = groups->literal.toInt();
  const int64_t rows = value.shape.empty() ? 0 : value.shape[0].factor;
  if (rows >= count && rows % count == 0) return;
  refuse_node(fmt::format("{} groups do not divide the {} rows of '{}'", count, rows,
                          value.weight.empty() ? value.name : value.weight));
}

int64_t within_range(bool overflows, int64_t size) {
  TORCH_CHECK(!overflows, "[program] a computed size overflows");
  return size;
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t size = 0;
  const bool overflows = __builtin_mul_overflow(a, b, &size);
  return within_range(overflows, size);
}

int64_t add(int64_t a, int64_t b) {
  int64_t size = 0;
  const bool overflows = __builtin_add_overflow(a, b, &size);
  return within_range(overflows, size);
}

int64_t subtract(int64_t a, int64_t b) {
  int64_t size = 0;
  const bool overflows = __builtin_sub_overflow(a, b, &size);
  return within_range(overflows, size);
}

int64_t floor_divide(int64_t a, int64_t b) {
  TORCH_CHECK(b > 0, "[program] division of a size by ", b);
  return a / b;
}

// The results of all these depend on nothing but their arguments, in-place ones write to what the program computed
// itself (Program's constructor), and every index is checked by ATen or by a guard.
const Operation kOperations[] = {
    // layers with weights
    {.names = "conv1d conv2d conv3d convolution",
     .check = check_convolution,
     .detour = detour_convolution,
     .macs = convolution_macs,
     .layer = true},
    {.names = "conv1d.padding conv2d.padding conv3d.padding conv_transpose1d conv_transpose2d.input "
              "conv_transpose3d.input",
     .check = check_convolution,
     .macs = convolution_macs,
     .layer = true},
    {.names = "linear addmm", .macs = product_macs, .layer = true},
    {.names = "lstm.input", .guard = guard_lstm, .detour = detour_recurrent, .macs = recurrent_macs, .layer = true},
    {.names = "gru.input", .guard = guard_gru, .detour = detour_recurrent, .macs = recurrent_macs, .layer = true},
    {.names = "rnn_tanh.input rnn_relu.input",
     .guard = guard_rnn,
     .detour = detour_recurrent,
     .macs = recurrent_macs,
     .layer = true},
    {.names = "_weight_norm", .guard = guard_weight_norm},
    {.names = "embedding prelu"},
    // norms
    {.names = "batch_norm instance_norm", .in_eval = InEval::kNormalizes},
    {.names = "layer_norm rms_norm group_norm"},
    // products of tensors
    {.names = "matmul bmm mm baddbmm", .macs = product_macs},
    {.names = "scaled_dot_product_attention", .guard = guard_attention, .macs = attention_macs},
    {.names = "einsum", .macs = einsum_macs, .shares = true},
    {.names = "mv dot outer addmv cosine_similarity"},
    // activations
    {.names = "relu relu_ relu6 relu6_ hardtanh hardtanh_ silu silu_ hardswish hardswish_ sigmoid sigmoid_ hardsigmoid "
              "hardsigmoid_ gelu gelu_ elu elu_ celu celu_ leaky_relu leaky_relu_ tanh tanh_ mish mish_ selu selu_ "
              "softplus log_sigmoid threshold threshold_ hardshrink softshrink softmax.int log_softmax.int glu"},
    // arithmetic by elements
    {.names = "add_.Tensor add_.Scalar", .in_eval = InEval::kCounts},
    {.names = "mul.Tensor mul_.Tensor mul.Scalar mul_.Scalar", .in_eval = InEval::kMultiplies},
    {.names = "div.Tensor div_.Tensor div.Scalar div_.Scalar", .in_eval = InEval::kDivides},
    {.names = "add.Tensor add.Scalar sub.Tensor sub_.Tensor sub.Scalar sub_.Scalar rsub.Tensor rsub.Scalar addcmul "
              "addcdiv lerp.Scalar lerp.Tensor clamp clamp_ clamp_min clamp_max clamp.Tensor clamp_min.Tensor "
              "clamp_max.Tensor abs neg exp expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin "
              "acos atan atan2 sinh cosh erf erfc exp2 logit sign sgn ceil floor round trunc frac nan_to_num "
              "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar pow_.Scalar maximum minimum fmax fmin hypot logaddexp "
              "xlogy.Tensor copysign.Tensor heaviside floor_divide floor_divide.Scalar remainder.Tensor "
              "remainder.Scalar fmod.Tensor fmod.Scalar abs_ neg_ exp_ sqrt_ rsqrt_ "
              "square_ reciprocal_ clamp_min_ clamp_max_ addcmul_ addcdiv_"},
    {.names = "div.Tensor_mode div.Scalar_mode", .guard = guard_division},
    // comparisons and masks
    {.names = "eq.Scalar eq.Tensor ne.Scalar ne.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor lt.Scalar lt.Tensor "
              "le.Scalar le.Tensor isnan isinf isfinite logical_not logical_and logical_or logical_xor bitwise_not "
              "bitwise_and.Tensor bitwise_or.Tensor where.self where.ScalarSelf where.ScalarOther masked_fill.Scalar "
              "masked_fill_.Scalar masked_fill.Tensor masked_fill_.Tensor fill_.Scalar fill_.Tensor zero_ tril triu"},
    // noise of training
    {.names = "dropout feature_dropout alpha_dropout", .shares = true},
    {.names = "dropout_ feature_dropout_"},
    {.names = "bernoulli", .in_eval = InEval::kAverages},
    {.names = "bernoulli_.float", .in_eval = InEval::kDraws},
    // copies and types
    {.names = "contiguous to.dtype to.device to.dtype_layout", .may_copy = true},
    {.names = "_to_copy clone detach detach_ alias lift_fresh_copy copy_"},
    {.names = "type_as", .shares = true},
    // pooling and resizing
    {.names = "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
              "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
              "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec "
              "upsample_bilinear2d.vec upsample_bicubic2d.vec upsample_trilinear3d.vec _upsample_nearest_exact1d.vec "
              "_upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec _upsample_bilinear2d_aa.vec "
              "_upsample_bicubic2d_aa.vec max_unpool2d grid_sampler affine_grid_generator"},
    // sums, extremes and orders over axes
    {.names =
         "mean mean.dim sum sum.dim_IntList prod prod.dim_int amax amin max max.dim min min.dim median median.dim "
         "argmax argmin any any.dim all all.dim std std.dim std.correction var var.dim var.correction var_mean.dim "
         "var_mean.correction std_mean.dim std_mean.correction logsumexp linalg_vector_norm norm.Scalar "
         "norm.ScalarOpt_dim cumsum cumprod logcumsumexp topk sort argsort diff"},
    // rearranging, by axes and positions that ATen checks
    {.names = "tile", .check = check_tile},
    {.names = "view", .detour = detour_view, .may_copy = true},
    {.names = "view_as", .detour = detour_view_as, .may_copy = true},
    {.names = "reshape reshape_as ravel flatten.using_ints", .may_copy = true},
    {.names = "unflatten.int squeeze squeeze.dim squeeze.dims "
              "unsqueeze permute transpose.int swapaxes t mT adjoint matrix_H numpy_T movedim.int movedim.intlist cat "
              "stack hstack vstack slice.Tensor narrow select.int "
              "index.Tensor index_select gather roll flip chunk split.Tensor split_with_sizes tensor_split.sections "
              "tensor_split.indices unbind.int unfold im2col "
              "col2im expand expand_as repeat repeat_interleave.self_int pad constant_pad_nd"},
    {.names = "pixel_shuffle pixel_unshuffle channel_shuffle", .shares = true},
    // tensors of a given size
    {.names = "empty.memory_format new_empty", .in_eval = InEval::kMakes},
    {.names = "zeros ones full new_zeros new_ones new_full zeros_like ones_like full_like empty_like scalar_tensor "
              "one_hot"},
    {.names = "arange arange.start arange.start_step", .check = check_range},
    {.names = "linspace"},
    {.names = "meshgrid meshgrid.indexing", .shares = true},
    // what run_decompositions() makes of layers
    {.names = "_native_batch_norm_legit_no_training", .guard = guard_batch_norm},
    {.names = "native_layer_norm native_group_norm native_dropout _softmax _log_softmax _adaptive_avg_pool2d "
              "max_pool2d_with_indices upsample_nearest2d upsample_bilinear2d"},
    {.names = "_unsafe_view", .shares = true},
    // sizes as numbers
    {.names = "sym_size.int", .in_eval = InEval::kMakes},
    {.names = "sym::mul", .check = check_sizes, .in_eval = InEval::kMakes, .arithmetic = multiply},
    {.names = "sym::add", .check = check_sizes, .in_eval = InEval::kMakes, .arithmetic = add},
    {.names = "sym::sub", .check = check_sizes, .in_eval = InEval::kMakes, .arithmetic = subtract},
    {.names = "sym::floordiv", .check = check_sizes, .in_eval = InEval::kMakes, .arithmetic = floor_divide},
};

// Other names, of the same arguments, with the overloads of the first list's.
struct Synonym {
  std::string_view name, row;
};
constexpr Synonym kSynonyms[] = {
    {"absolute", "abs"},    {"negative", "neg"},          {"multiply", "mul"},      {"divide", "div"},
    {"true_divide", "div"}, {"subtract", "sub"},          {"clip", "clamp"},        {"clip_", "clamp_"},
    {"concat", "cat"},      {"concatenate", "cat"},       {"row_stack", "vstack"},  {"moveaxis", "movedim"},
    {"greater", "gt"},      {"greater_equal", "ge"},      {"less", "lt"},           {"less_equal", "le"},
    {"not_equal", "ne"},    {"__and__", "bitwise_and"},   {"__or__", "bitwise_or"}, {"linalg_matmul", "matmul"},
    {"arctan", "atan"},     {"arcsin", "asin"},           {"arccos", "acos"},       {"arctan2", "atan2"},
    {"fix", "trunc"},       {"special_expit", "sigmoid"},
};
constexpr Synonym kSynonymsOfOverloads[] = {
    {"max.other", "maximum"}, {"min.other", "minimum"}, {"swapdims", "transpose.int"}, {"broadcast_to", "expand"}};

const RowsByName<Operation>& rows() {
  static const RowsByName by_name(kOperations);
  return by_name;
}

}  // namespace

const Operation& operation_of(const std::string& target) {
  return rows().of(target);
}

std::string name_of_row(const std::string& target) {
  constexpr std::string_view kSpace = "aten::";
  if (!target.starts_with(kSpace)) return target;
  const std::string_view name = std::string_view(target).substr(kSpace.size());
  const auto find = [](const auto& synonyms, std::string_view wanted) {
    const auto found = std::find_if(std::begin(synonyms), std::end(synonyms),
                                    [&](const Synonym& synonym) { return synonym.name == wanted; });
    return found == std::end(synonyms) ? std::string_view() : found->row;
  };
  if (const auto row = find(kSynonymsOfOverloads, name); !row.empty()) return fmt::format("{}{}", kSpace, row);
  const size_t base = std::min(name.find('.'), name.size());
  const auto row = find(kSynonyms, name.substr(0, base));
  return row.empty() ? target : fmt::format("{}{}{}", kSpace, row, name.substr(base));
}

std::vector<std::string> listed_operations() {
  std::vector<std::string> names;
  for (const auto& item : rows().all()) names.push_back(item.first);
  return names;
}

void check_operation(const Graph& graph, const Node& node) {
  const Operation& row = operation_of(node.target);
  if (row.names.empty()) refuse_node("is not among the operations that a program from a file may hold");
  (row.check ? row.check : check_arguments)(graph, node);
}

bool is_transposed(const Node& node) {
  return node.target.starts_with("aten::conv_transpose") || node.boolean("transposed", false);
}

}  // namespace prunex::program
