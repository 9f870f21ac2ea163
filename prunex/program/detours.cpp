// Calls that kernels get wrong or refuse, which are made in another way.
#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

using torch::jit::Stack;

/// A convolution's arguments: input, weight, bias, stride, padding, dilation, and what follows.
struct Convolution {
  explicit Convolution(const Stack& arguments)
      : input(arguments.at(0).toTensor()), weight(arguments.at(1).toTensor()), axes(weight.dim() - 2) {
    const bool transposed = arguments.size() == 9 && arguments[6].toBool();
    for (size_t i = 0; i < 3; ++i) {
      auto& numbers = each[i];
      numbers = arguments.at(3 + i).toIntVector();
      if (numbers.size() == 1 && axes > 0) numbers.resize(static_cast<size_t>(axes), numbers[0]);
      known = known && static_cast<int64_t>(numbers.size()) == axes;
    }
    const auto is_wrong = [](int64_t number) { return number < 1; };
    known = known && !transposed && axes > 0 && input.dim() > axes &&
            std::none_of(stride().begin(), stride().end(), is_wrong) &&
            std::none_of(dilation().begin(), dilation().end(), is_wrong);
  }

  const std::vector<int64_t>& stride() const { return each[0]; }
  const std::vector<int64_t>& padding() const { return each[1]; }
  const std::vector<int64_t>& dilation() const { return each[2]; }
  int64_t side(int64_t axis) const { return input.size(input.dim() - axes + axis); }

  /// Whether a position of the kernel sees nothing but padding.
  bool has_idle_position(int64_t axis) const {
    const auto i = static_cast<size_t>(axis);
    const int64_t length = side(axis), reach = (weight.size(2 + axis) - 1) * dilation()[i];
    const int64_t outputs = (length + 2 * padding()[i] - reach - 1) / stride()[i] + 1;
    for (int64_t position = 0; position <= reach; position += dilation()[i]) {
      bool sees = false;
      for (int64_t o = 0; o < outputs && !sees; ++o) {
        const int64_t at = o * stride()[i] - padding()[i] + position;
        sees = at >= 0 && at < length;
      }
      if (!sees) return true;
    }
    return false;
  }

  at::Tensor input, weight;
  int64_t axes;
  std::vector<int64_t> each[3];
  bool known = true;  ///< else ATen says what is wrong, or it is none of what follows
};

bool is_zero(int64_t number) {
  return number == 0;
}

/// The gradient of weights that look at one position, with a stride, over channels that lie side by side and are fewer
/// than a vector holds, is wrong in oneDNN, which writes beyond its memory there (uxlfoundation/oneDNN, issue 6035).
/// The positions that count are taken first instead.
bool skip_positions(const Convolution& of, Stack& arguments) {
  constexpr int64_t kLongestVector = 16;
  const auto kernel = of.weight.sizes().slice(2);
  const auto is_one = [](int64_t number) { return number == 1; };
  if (of.weight.size(1) >= kLongestVector || !std::all_of(kernel.begin(), kernel.end(), is_one) ||
      !std::all_of(of.padding().begin(), of.padding().end(), is_zero) ||
      std::all_of(of.stride().begin(), of.stride().end(), is_one)) {
    return false;
  }
  auto taken = of.input;
  for (int64_t i = 0; i < of.axes; ++i) {
    taken = taken.slice(taken.dim() - of.axes + i, 0, std::nullopt, of.stride()[static_cast<size_t>(i)]);
  }
  arguments[0] = taken;
  arguments[3] = std::vector<int64_t>(of.stride().size(), 1);
  return true;
}

/// In bf16 oneDNN leaves the gradient of weights unset that see nothing but its padding, as all but the middle of a 3x3
/// kernel on one pixel. Padding that is part of the input it sees.
void pad_before(const Convolution& of, Stack& arguments) {
  const bool is_bf16 = of.input.scalar_type() == at::kBFloat16 || at::autocast::is_autocast_enabled(at::kCPU);
  if (!of.input.is_cpu() || !is_bf16 || !at::GradMode::is_enabled()) return;
  bool any = false;
  for (int64_t i = 0; i < of.axes && !any; ++i) any = of.has_idle_position(i);
  if (!any) return;
  std::vector<int64_t> sides;  // of the last axis first
  for (size_t i = of.padding().size(); i-- > 0;) sides.insert(sides.end(), 2, of.padding()[i]);
  arguments[0] = at::constant_pad_nd(of.input, sides);
  arguments[4] = std::vector<int64_t>(of.padding().size(), 0);
}

void allow_view(Stack& arguments, at::IntArrayRef shape) {
  const auto self = arguments.at(0).toTensor();
  if (self.is_contiguous()) return;
  const auto size = at::infer_size(shape, self.numel());
  if (!at::detail::computeStride(self.sizes(), self.strides(), size)) arguments[0] = self.contiguous();
}

}  // namespace

void detour_convolution(Stack& arguments) {
  const Convolution convolution(arguments);
  if (convolution.known && !skip_positions(convolution, arguments)) pad_before(convolution, arguments);
}

/// The arguments of lstm, gru and rnn, of which the first is the input and the third the weights: under autocast they
/// may differ in type.
void detour_recurrent(Stack& arguments) {
  const auto input = arguments.at(0).toTensor();
  const auto weights = arguments.at(2).toTensorVector();
  const bool casts = at::autocast::is_autocast_enabled(input.device().type()) && input.is_floating_point();
  if (casts && !weights.empty()) arguments[0] = input.to(weights[0].scalar_type());
}

/// self, size: as a copy in the usual order where the memory's does not allow the view.
void detour_view(Stack& arguments) {
  allow_view(arguments, arguments.at(1).toIntVector());
}

/// self, other.
void detour_view_as(Stack& arguments) {
  allow_view(arguments, arguments.at(1).toTensor().sizes());
}

}  // namespace prunex::program
