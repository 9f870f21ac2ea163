#include "prunex/program/builder.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace prunex::program {
namespace {

constexpr double kBatchNormMomentum = 0.1;
constexpr double kNormEpsilon = 1e-5;
constexpr const char* kMetadata = R"({"nn_module_stack":"L__self__,,torch.nn.Module"})";

Argument pair(std::string name, int64_t value) {
  return Builder::literal(std::move(name), std::vector<int64_t>{value, value});
}

std::string identifier(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

Shape fixed(at::IntArrayRef sizes) {
  Shape shape;
  for (int64_t size : sizes) shape.push_back({size, false});
  return shape;
}

void require(bool ok, const std::string& message) {
  if (!ok) throw std::invalid_argument("[program] " + message);
}

/// Windows of a convolution or pooling that fit along one axis of `size` positions.
int64_t windows(int64_t size, int64_t reach, int64_t stride, int64_t padding) {
  return size + 2 * padding < reach ? 0 : (size + 2 * padding - reach) / stride + 1;
}

}  // namespace

Builder::Builder(uint64_t seed) : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

Argument Builder::literal(std::string name, c10::IValue value) {
  Argument argument;
  argument.name = std::move(name);
  argument.literal = std::move(value);
  return argument;
}

Argument Builder::tensors(std::string name, std::vector<ValueId> values) {
  Argument argument;
  argument.name = std::move(name);
  argument.kind = Argument::Kind::kValues;
  argument.values = std::move(values);
  return argument;
}

Argument Builder::tensor(std::string name, ValueId value) {
  if (value == kNoValue) return literal(std::move(name), {});
  Argument argument = tensors(std::move(name), {value});
  argument.kind = Argument::Kind::kValue;
  return argument;
}

const Shape& Builder::shape(ValueId value) const {
  return graph_.values.at(value).shape;
}

ValueId Builder::add_value(const std::string& name, Role role, Shape shape) {
  std::string unique = name;
  for (int i = 1; !names_.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
  graph_.values.push_back(
      {.name = unique, .role = role, .weight = {}, .dtype = at::kFloat, .shape = std::move(shape), .number = {}});
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Builder::weight(const std::string& name, Role role, const at::Tensor& tensor) {
  const bool parameter = role == Role::kParameter;
  const ValueId id = add_value(identifier((parameter ? "p_" : "b_") + name), role, fixed(tensor.sizes()));
  graph_.values[id].weight = name;
  graph_.values[id].dtype = tensor.scalar_type();
  at::Tensor leaf = tensor.detach().set_requires_grad(parameter);
  (parameter ? weights_.params : weights_.buffers).insert(name, std::move(leaf));
  return id;
}

ValueId Builder::call(const std::string& target, std::vector<Argument> arguments, Shape shape) {
  const size_t colon = target.find("::") + 2;
  const ValueId out = add_value(target.substr(colon, target.find('.') - colon), Role::kComputed, std::move(shape));
  graph_.nodes.push_back({.target = target,
                          .arguments = std::move(arguments),
                          .outputs = {out},
                          .output_is_list = false,
                          .metadata = kMetadata});
  return out;
}

ValueId Builder::input(const std::string& name, const std::vector<int64_t>& shape) {
  Shape batch{{1, true}};
  for (int64_t size : shape) batch.push_back({size, false});
  graph_.inputs.push_back(add_value(name, Role::kInput, std::move(batch)));
  return graph_.inputs.back();
}

const Shape& Builder::image_shape(ValueId x, const std::string& who) const {
  require(shape(x).size() == 4, fmt::format("{}: the input has {} axes, wanted 4 (NCHW)", who, shape(x).size()));
  return shape(x);
}

ValueId Builder::conv2d(const std::string& name, ValueId x, const ConvOptions& o) {
  Shape out = image_shape(x, name);
  const int64_t in = out[1].factor;
  require(o.out > 0 && o.groups > 0 && in % o.groups == 0 && o.out % o.groups == 0,
          fmt::format("{}: {} groups do not divide {} input and {} output channels", name, o.groups, in, o.out));
  const int64_t reach = o.dilation * (o.kernel - 1) + 1;
  out[1].factor = o.out;
  require(o.stride > 0, fmt::format("a convolution's stride: got {}, wanted 1 or more", o.stride));
  for (int axis : {2, 3}) out[axis].factor = windows(out[axis].factor, reach, o.stride, o.padding);
  require(out[2].factor > 0 && out[3].factor > 0,
          fmt::format("{}: the {}x{} kernel does not fit into its input", name, o.kernel, o.kernel));

  at::Tensor kernel = at::empty({o.out, in / o.groups, o.kernel, o.kernel});
  const double fan_out = static_cast<double>(o.out * o.kernel * o.kernel);
  kernel.normal_(0, std::sqrt(2.0 / fan_out), generator_);
  const ValueId w = weight(name + ".weight", Role::kParameter, kernel);
  const ValueId b = o.bias ? weight(name + ".bias", Role::kParameter, at::zeros({o.out})) : kNoValue;
  return call("aten::conv2d",
              {tensor("input", x), tensor("weight", w), tensor("bias", b), pair("stride", o.stride),
               pair("padding", o.padding), pair("dilation", o.dilation), literal("groups", o.groups)},
              std::move(out));
}

ValueId Builder::batch_norm(const std::string& name, ValueId x) {
  require(shape(x).size() >= 2, name + ": the input has no channel axis");
  const int64_t channels = shape(x)[1].factor;
  const ValueId gamma = weight(name + ".weight", Role::kParameter, at::ones({channels}));
  const ValueId beta = weight(name + ".bias", Role::kParameter, at::zeros({channels}));
  const ValueId mean = weight(name + ".running_mean", Role::kBuffer, at::zeros({channels}));
  const ValueId variance = weight(name + ".running_var", Role::kBuffer, at::ones({channels}));
  weight(name + ".num_batches_tracked", Role::kBuffer, at::zeros({}, at::kLong));
  return call("aten::batch_norm",
              {tensor("input", x), tensor("weight", gamma), tensor("bias", beta), tensor("running_mean", mean),
               tensor("running_var", variance), literal("training", false), literal("momentum", kBatchNormMomentum),
               literal("eps", kNormEpsilon), literal("cudnn_enabled", true)},
              shape(x));
}

ValueId Builder::group_norm(const std::string& name, ValueId x, int64_t groups) {
  const int64_t channels = image_shape(x, name)[1].factor;
  require(groups > 0 && channels % groups == 0,
          fmt::format("{}: {} groups do not divide {} channels", name, groups, channels));
  const ValueId gamma = weight(name + ".weight", Role::kParameter, at::ones({channels}));
  const ValueId beta = weight(name + ".bias", Role::kParameter, at::zeros({channels}));
  return call("aten::group_norm",
              {tensor("input", x), literal("num_groups", groups), tensor("weight", gamma), tensor("bias", beta),
               literal("eps", kNormEpsilon), literal("cudnn_enabled", true)},
              shape(x));
}

ValueId Builder::linear(const std::string& name, ValueId x, const LinearOptions& o) {
  Shape out = shape(x);
  require(out.size() >= 2 && !out.back().per_image && o.out > 0, name + ": the input's last axis must be features");
  const int64_t in = out.back().factor;
  out.back().factor = o.out;
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const auto draw = [&](at::Tensor t) {
    return o.normal > 0 ? t.normal_(0, o.normal, generator_) : t.uniform_(-bound, bound, generator_);
  };
  const ValueId w = weight(name + ".weight", Role::kParameter, draw(at::empty({o.out, in})));
  ValueId b = kNoValue;
  if (o.bias) {
    b = weight(name + ".bias", Role::kParameter, o.normal > 0 ? at::zeros({o.out}) : draw(at::empty({o.out})));
  }
  return call("aten::linear", {tensor("input", x), tensor("weight", w), tensor("bias", b)}, std::move(out));
}

ValueId Builder::elementwise(const std::string& target, const std::string& argument, ValueId x) {
  return call(target, {tensor(argument, x)}, shape(x));
}

ValueId Builder::binary(const std::string& target, ValueId a, ValueId b) {
  require(shape(a) == shape(b), target + ": the shapes of its inputs differ");
  return call(target, {tensor("self", a), tensor("other", b)}, shape(a));
}

ValueId Builder::dropout(ValueId x, double p) {
  return call("aten::dropout", {tensor("input", x), literal("p", p), literal("train", false)}, shape(x));
}

ValueId Builder::pool(const std::string& target, ValueId x, const PoolOptions& o) {
  Shape out = image_shape(x, target);
  require(o.stride > 0, fmt::format("a pooling's stride: got {}, wanted 1 or more", o.stride));
  for (int axis : {2, 3}) out[axis].factor = windows(out[axis].factor, o.kernel, o.stride, o.padding);
  require(out[2].factor > 0 && out[3].factor > 0,
          fmt::format("{}: the {}x{} window does not fit into its input", target, o.kernel, o.kernel));
  return call(target,
              {tensor("self", x), pair("kernel_size", o.kernel), pair("stride", o.stride), pair("padding", o.padding)},
              std::move(out));
}

ValueId Builder::max_pool2d(ValueId x, const PoolOptions& options) {
  return pool("aten::max_pool2d", x, options);
}
ValueId Builder::avg_pool2d(ValueId x, const PoolOptions& options) {
  return pool("aten::avg_pool2d", x, options);
}

ValueId Builder::adaptive_avg_pool2d(ValueId x, std::array<int64_t, 2> size) {
  Shape out = image_shape(x, "adaptive_avg_pool2d");
  out[2].factor = size[0];
  out[3].factor = size[1];
  return call("aten::adaptive_avg_pool2d",
              {tensor("self", x), literal("output_size", std::vector<int64_t>(size.begin(), size.end()))},
              std::move(out));
}

ValueId Builder::flatten(ValueId x) {
  const Shape& in = shape(x);
  require(in.size() >= 2, "flatten: the input has no axis beside the batch");
  int64_t features = 1;
  for (size_t axis = 1; axis < in.size(); ++axis) features *= in[axis].factor;
  return call("aten::flatten.using_ints", {tensor("self", x), literal("start_dim", int64_t{1})},
              {in[0], {features, false}});
}

ValueId Builder::mean(ValueId x, const std::vector<int64_t>& axes) {
  Shape out;
  const auto rank = static_cast<int64_t>(shape(x).size());
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) out.push_back(shape(x)[axis]);
  }
  require(out.size() + axes.size() == shape(x).size(),
          fmt::format("mean: no axes [{}] in its input", fmt::join(axes, ", ")));
  return call("aten::mean.dim", {tensor("self", x), literal("dim", axes)}, std::move(out));
}

ValueId Builder::cat(const std::vector<ValueId>& values, int64_t axis) {
  require(!values.empty(), "cat: no inputs");
  Shape out = shape(values[0]);
  require(axis >= 0 && axis < static_cast<int64_t>(out.size()), fmt::format("cat: its inputs have no axis {}", axis));
  for (size_t i = 1; i < values.size(); ++i) {
    Shape other = shape(values[i]);
    require(other.size() == out.size(), "cat: the shapes of its inputs differ");
    const int64_t added = std::exchange(other[axis].factor, out[axis].factor);
    require(other == out, "cat: the shapes of its inputs differ");
    out[axis].factor += added;
  }
  return call("aten::cat", {tensors("tensors", values), literal("dim", axis)}, std::move(out));
}

Model Builder::finish(ValueId output) && {
  graph_.outputs = {output};
  return {.program = Program(std::move(graph_)), .weights = std::move(weights_)};
}

}  // namespace prunex::program
