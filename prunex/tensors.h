// The named tensors that every room shares.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <string>

namespace prunex {

/// Tensors by state-dict name, in the order of the model.
using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

/// A model's trainable parameters and its buffers (batch-norm statistics). Tied weights are listed once.
struct Weights {
  TensorDict params;
  TensorDict buffers;
};

/// A flat view of a tensor without holes: its entries in the order of memory, without autograd history.
inline at::Tensor in_memory_order(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

/// An optimizer's memory by name, such as "momentum": tensors like parameters, of all or some of them.
using OptimizerState = torch::OrderedDict<std::string, TensorDict>;

/// What one rank trains: its weights, and what its optimizer remembers of them.
struct Replica {
  Weights weights;
  OptimizerState optimizer;
  int64_t updates = 0;  ///< that the optimizer remembers: of a node that joins a run, less than the run's steps
};

}  // namespace prunex
