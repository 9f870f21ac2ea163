// Makes a model node by node: calls, recorded shapes and freshly drawn weights.
#pragma once

#include <ATen/core/Generator.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::program {

struct ConvOptions {
  int64_t out = 0;     ///< output channels
  int64_t kernel = 1;  ///< square
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;  ///< divides the input and output channels
  bool bias = false;
};

struct PoolOptions {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

struct LinearOptions {
  int64_t out = 0;
  bool bias = true;
  double normal = 0;  ///< standard deviation of normal weights with zero biases; 0: PyTorch's uniform law
};

/// Every function appends one ATen call and returns its value. `name` is the layer's place in the state dict
/// ("layer1.0.conv1"): its tensors are NAME.weight, NAME.bias and so on, in the order of the calls. Functions whose
/// name ends in an underscore work in place, like their ATen namesakes. The calls are recorded in eval form
/// (batch norm and dropout not training); Program::run switches them by mode.
/// Shapes that do not fit throw std::invalid_argument.
class Builder {
 public:
  /// Weights are drawn from a CPU generator with this seed.
  explicit Builder(uint64_t seed);

  /// The user's input: a batch of `shape` per image, of any size.
  ValueId input(const std::string& name, const std::vector<int64_t>& shape);

  /// Weights ~ N(0, 2 / fan_out), biases 0 (He et al.; torchvision's choice).
  ValueId conv2d(const std::string& name, ValueId x, const ConvOptions& options);
  ValueId batch_norm(const std::string& name, ValueId x);
  ValueId group_norm(const std::string& name, ValueId x, int64_t groups);
  ValueId linear(const std::string& name, ValueId x, const LinearOptions& options);

  ValueId relu(ValueId x) { return elementwise("aten::relu", "self", x); }
  ValueId relu_(ValueId x) { return elementwise("aten::relu_", "self", x); }
  ValueId add(ValueId a, ValueId b) { return binary("aten::add.Tensor", a, b); }
  ValueId add_(ValueId a, ValueId b) { return binary("aten::add_.Tensor", a, b); }
  ValueId dropout(ValueId x, double p);
  ValueId max_pool2d(ValueId x, const PoolOptions& options);
  ValueId avg_pool2d(ValueId x, const PoolOptions& options);
  ValueId adaptive_avg_pool2d(ValueId x, std::array<int64_t, 2> size);
  ValueId flatten(ValueId x);                                 ///< all axes but the batch into one
  ValueId mean(ValueId x, const std::vector<int64_t>& axes);  ///< the axes disappear
  ValueId cat(const std::vector<ValueId>& values, int64_t axis);

  /// Any other operation with one result of this shape; a tensor's kNoValue is None. Arguments go by the schema's
  /// names.
  ValueId call(const std::string& target, std::vector<Argument> arguments, Shape shape);
  static Argument tensor(std::string name, ValueId value);
  static Argument tensors(std::string name, std::vector<ValueId> values);
  static Argument literal(std::string name, c10::IValue value);

  const Shape& shape(ValueId value) const;

  /// The finished model; the builder is empty afterwards.
  Model finish(ValueId output) &&;

 private:
  ValueId add_value(const std::string& name, Role role, Shape shape);
  ValueId weight(const std::string& name, Role role, const at::Tensor& tensor);
  ValueId elementwise(const std::string& target, const std::string& argument, ValueId x);
  ValueId binary(const std::string& target, ValueId a, ValueId b);
  ValueId pool(const std::string& target, ValueId x, const PoolOptions& options);
  const Shape& image_shape(ValueId x, const std::string& who) const;

  Graph graph_;
  Weights weights_;
  std::set<std::string> names_;
  at::Generator generator_;
};

}  // namespace prunex::program
