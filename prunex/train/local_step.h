// One optimizer step of one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "prunex/data/loader.h"
#include "prunex/program/program.h"
#include "prunex/tensors.h"
#include "prunex/train/loss.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// Dropout draws from the process's generator: ties it to the step, so that a resumed run draws the same.
void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step);

/// What local steps multiply; sums, weights and gradients are fp32 in all of them.
enum class Arithmetic {
  kFp32,  ///< fp32, as IEEE has it
  kTf32,  ///< on GPUs: of fp32 numbers the first 10 bits behind the point
  kBf16,  ///< forward and loss under autocast
};
/// "fp32", "tf32", "bf16".
const char* name_of(Arithmetic arithmetic);
/// Nothing for other names.
std::optional<Arithmetic> arithmetic_named(const std::string& name);

/// The training_loss() of a batch, where the weights lie, and backward; leaves the gradients in the parameters and
/// returns the loss, which lies there, too: nobody has waited for it.
at::Tensor compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch,
                             Arithmetic arithmetic, const LossOptions& loss = {});

/// The same without the hooks of parameters, whose gradients must be undefined: what a graph may record.
at::Tensor take_gradients(const program::Program& program, Replica& replica, const data::Batch& batch,
                          Arithmetic arithmetic, const LossOptions& loss = {});

/// Losses added up where they lie; those of a GPU reach the host when the sum is taken.
class LossSum {
 public:
  /// length: for what is said of a loss that is no number.
  explicit LossSum(RunLength length) : length_(std::make_shared<const RunLength>(std::move(length))) {}

  /// Throws std::runtime_error if the loss is not finite and lies on the CPU.
  void add(const at::Tensor& loss, int64_t step);
  /// The sum since the last call. Throws std::runtime_error if a loss was not finite.
  double take();

 private:
  void check(double sum, int64_t step, const std::string& where) const;

  std::shared_ptr<const RunLength> length_;  // one for all copies, of which some runs make one in every step
  at::Tensor sum_;                           // double, where the losses are; undefined before the first one
  int64_t first_ = 0, last_ = 0;
};

/// From here on GPUs multiply fp32 as IEEE has it, outside of steps in tf32, where PyTorch lets convolutions take less;
/// and convolutions add up in one order. Of the whole process.
void compute_reproducibly();

/// Whether this processor multiplies bf16 faster than fp32, as AMD's do with AVX-512 and Intel's with AMX; Intel's with
/// AVX-512 alone are slower in it (docs/performance.md).
bool is_faster_in_bf16();

}  // namespace prunex::train
