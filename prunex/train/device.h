// Where a run computes.
#pragma once

#include <ATen/core/Tensor.h>

#include "prunex/data/loader.h"
#include "prunex/program/program.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// Where the weights lie; all of them lie on one device.
c10::Device device_of(const Weights& weights);

/// The same tensors if they are there already, else copies. What requires gradients is a leaf there, too.
program::Model on_device(program::Model model, const c10::Device& device);
/// Returns before the tensor is there; what is computed with it waits.
at::Tensor on_device(const at::Tensor& tensor, const c10::Device& device);
data::Batch on_device(const data::Batch& batch, const c10::Device& device);

}  // namespace prunex::train
