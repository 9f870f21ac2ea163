// The named tensors that every room shares.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace prunex {

/// Tensors by state-dict name, in the order of the model.
using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

/// A model's trainable parameters and its buffers (batch-norm statistics). Tied weights are listed once.
struct Weights {
  TensorDict params;
  TensorDict buffers;
};

/// What one rank trains: its weights and the optimizer's momentum, one tensor per parameter.
struct Replica {
  Weights weights;
  TensorDict momentum;
};

}  // namespace prunex
