// One optimizer step of one rank, and where it computes.
#pragma once

#include <cstdint>
#include <string>

#include "prunex/data/loader.h"
#include "prunex/program/program.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// Dropout draws from the process's generator: ties it to the step, so that a resumed run draws the same.
void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step);

/// Cross-entropy of a batch, where the weights lie, and backward; leaves the gradients in the parameters and returns
/// the loss, which lies there, too: nobody has waited for it. With `bf16`, forward and loss run under autocast, weights
/// and gradients stay fp32.
at::Tensor compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch, bool bf16);

/// Losses added up where they lie; those of a GPU reach the host when the sum is taken.
class LossSum {
 public:
  /// learning_rate: for what is said of a loss that is no number.
  explicit LossSum(double learning_rate) : learning_rate_(learning_rate) {}

  /// Throws std::runtime_error if the loss is not finite and lies on the CPU.
  void add(const at::Tensor& loss, int64_t step);
  /// The sum since the last call. Throws std::runtime_error if a loss was not finite.
  double take();

 private:
  void check(double sum, const std::string& where) const;

  double learning_rate_;
  at::Tensor sum_;  // double, where the losses are; undefined before the first one
  int64_t first_ = 0, last_ = 0;
};

/// Whether this processor multiplies bf16 in hardware.
bool has_bf16_arithmetic();

struct SgdOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
};

/// One step of every parameter that has a gradient, in one pass over its memory:
///   g = grad + weight_decay theta + rho1 (theta - anchor);  v = (momentum v + g) mask;  theta = (theta - lr v) mask
/// Without terms this is torch.optim.SGD. Momentum, anchors and masks have the memory layout of their parameter;
/// gradients may have any. Releases the gradients.
void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const SgdOptions& options);

/// For loops with an optimizer of their own: adds the proximal term to the gradients and masks them. After the freeze
/// such a loop must also mask its momentum once.
void add_local_terms(Weights& weights, const strategies::LocalTerms& terms);

/// Zero momentum for every parameter, in its memory layout.
TensorDict zero_momentum(const TensorDict& params);

// Where a run computes.

/// Where the weights lie; all of them lie on one device.
c10::Device device_of(const Weights& weights);

/// What requires gradients is a leaf there, too.
program::Model on_device(program::Model model, const c10::Device& device);
/// Returns before the images are there; what is computed with them waits.
data::Batch on_device(const data::Batch& batch, const c10::Device& device);

}  // namespace prunex::train
