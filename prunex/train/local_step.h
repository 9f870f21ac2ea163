// One optimizer step of one rank.
#pragma once

#include <cstdint>

#include "prunex/data/loader.h"
#include "prunex/program/program.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// Dropout draws from the process's generator: ties it to the step, so that a resumed run draws the same.
void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step);

/// Cross-entropy of a batch, where the weights lie, and backward; leaves the gradients in the parameters and returns
/// the loss. With `bf16`, forward and loss run under autocast, weights and gradients stay fp32.
double compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch, bool bf16);

/// Whether this processor multiplies bf16 in hardware.
bool has_bf16_arithmetic();

}  // namespace prunex::train
