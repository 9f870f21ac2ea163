// Calls whose shapes ATen takes for granted: its kernels would read behind the end of a tensor that is too small.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <vector>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

using torch::jit::Stack;

void check_sizes(const at::Tensor& tensor, at::IntArrayRef wanted, const char* what) {
  TORCH_CHECK(tensor.sizes() == wanted, "[program] ", what, " is ", tensor.sizes(), ", wanted ", wanted);
}

/// The arguments of lstm, gru and rnn: input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
/// batch_first.
struct Recurrent {
  explicit Recurrent(const Stack& arguments)
      : input(arguments.at(0).toTensor()),
        states(arguments.at(1).isTensor() ? std::vector<at::Tensor>{arguments[1].toTensor()}
                                          : arguments[1].toTensorVector()),
        params(arguments.at(2).toTensorVector()),
        biases(arguments.at(3).toBool()),
        layers(arguments.at(4).toInt()),
        directions(arguments.at(7).toBool() ? 2 : 1),
        batch_axis(arguments.at(8).toBool() ? 0 : 1) {}

  void check(int64_t gates) const {
    TORCH_CHECK(input.dim() == 3 && !states.empty(), "[program] the input has ", input.dim(), " axes, wanted 3");
    for (const auto& state : states)
      TORCH_CHECK(state.dim() == 3, "[program] a state has ", state.dim(), " axes, wanted 3");
    const int64_t out = states[0].size(2), hidden = states.back().size(2);
    const int64_t each = (biases ? 4 : 2) + (out != hidden);
    const auto given = static_cast<int64_t>(params.size());
    TORCH_CHECK(layers > 0 && given % (directions * each) == 0 && given / (directions * each) == layers,
                "[program] got ", given, " weights for ", layers, " layers");
    const int64_t cells = layers * directions;
    check_sizes(states[0], {cells, input.size(batch_axis), out}, "the state");
    check_sizes(states.back(), {cells, input.size(batch_axis), hidden}, "the state");
    for (int64_t cell = 0; cell < cells; ++cell) {
      const int64_t in = cell < directions ? input.size(2) : directions * out;
      check_cell(&params[cell * each], in, out, gates * hidden, hidden);
    }
  }

 private:
  void check_cell(const at::Tensor* weights, int64_t in, int64_t out, int64_t rows, int64_t hidden) const {
    check_sizes(weights[0], {rows, in}, "an input weight");
    check_sizes(weights[1], {rows, out}, "a recurrent weight");
    if (biases) check_sizes(weights[2], rows, "a bias");
    if (biases) check_sizes(weights[3], rows, "a bias");
    if (out != hidden) check_sizes(weights[biases ? 4 : 2], {out, hidden}, "a projection");
    const auto count = (biases ? 4 : 2) + (out != hidden);
    // Under autocast the input becomes of their type (detour_recurrent).
    const bool casts = at::autocast::is_autocast_enabled(input.device().type()) && input.is_floating_point();
    const auto wanted = casts && params[0].is_floating_point() ? params[0].scalar_type() : input.scalar_type();
    for (int64_t i = 0; i < count; ++i) {
      TORCH_CHECK(weights[i].scalar_type() == wanted, "[program] a weight is ", weights[i].scalar_type(), ", the ",
                  casts ? "first one " : "input ", wanted);
    }
  }

  at::Tensor input;
  std::vector<at::Tensor> states, params;
  bool biases;
  int64_t layers, directions, batch_axis;
};

}  // namespace

void guard_lstm(const Stack& arguments) {
  Recurrent(arguments).check(4);
}

void guard_gru(const Stack& arguments) {
  Recurrent(arguments).check(3);
}

void guard_rnn(const Stack& arguments) {
  Recurrent(arguments).check(1);
}

/// input, weight, bias, running_mean, running_var: an entry per channel in all but the first.
void guard_batch_norm(const Stack& arguments) {
  const auto input = arguments.at(0).toTensor();
  TORCH_CHECK(input.dim() >= 2, "[program] the input has ", input.dim(), " axes, wanted at least 2");
  for (size_t i = 1; i <= 4; ++i) {
    if (!arguments.at(i).isNone())
      check_sizes(arguments[i].toTensor(), input.size(1), "a tensor of one entry per channel");
  }
}

/// v, g, dim: a length for every position of an axis that is the first or the last.
void guard_weight_norm(const Stack& arguments) {
  const auto v = arguments.at(0).toTensor(), g = arguments.at(1).toTensor();
  const int64_t axis = arguments.at(2).toInt();
  if (axis < 0 || axis >= v.dim()) return;  // is computed by checked operations
  std::vector<int64_t> wanted(v.dim(), 1);
  wanted[axis] = v.size(axis);
  check_sizes(g, wanted, "the length");
  TORCH_CHECK(v.numel() > 0 && v.scalar_type() == g.scalar_type(), "[program] lengths are ", g.scalar_type(), ", ",
              v.numel(), " directions ", v.scalar_type());
}

/// query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa: shared heads are counted by dividing.
void guard_attention(const Stack& arguments) {
  if (!arguments.at(7).toBool()) return;
  for (size_t i = 0; i < 3; ++i) {
    const auto factor = arguments[i].toTensor();
    TORCH_CHECK(factor.dim() >= 3 && factor.size(-3) > 0, "[program] attention with shared heads has none in ",
                factor.sizes());
  }
}

/// self, other, rounding_mode: the least integer by -1 ends the process.
void guard_division(const Stack& arguments) {
  if (arguments.at(2).isNone() || arguments[2].toStringRef() != "trunc") return;
  const auto is_integral = [](const c10::IValue& value) {
    return value.isTensor() ? at::isIntegralType(value.toTensor().scalar_type(), false)
                            : value.toScalar().isIntegral(false);
  };
  TORCH_CHECK(!is_integral(arguments[0]) || !is_integral(arguments.at(1)), "[program] integers divided towards zero");
}

}  // namespace prunex::program
