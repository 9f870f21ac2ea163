// Structural units that live or die together.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <string>
#include <vector>

namespace prunex::sparsity {

/// Axes a slice can lie on. A tensor's GEMM view has shape[0] rows and numel / shape[0] columns, in row-major
/// order of the remaining dimensions (Cin x KH x KW of a convolution), whatever the memory layout.
inline constexpr int64_t kRows = 0;      ///< dim 0: filters, entries of a vector
inline constexpr int64_t kChannels = 1;  ///< dim 1: input channels
inline constexpr int64_t kColumns = -1;  ///< columns of the GEMM view, one per (input channel, kernel position)

/// Where a group's units lie in one tensor. Unit c owns the c-th block of index.size() / size positions of the axis;
/// an empty index is the identity: unit c owns position c.
struct Slice {
  std::string tensor;
  int64_t axis = kRows;
  std::vector<int64_t> index;
  bool operator==(const Slice&) const = default;

  /// Of each of so many units.
  int64_t positions_per_unit(int64_t units) const {
    return index.empty() ? 1 : static_cast<int64_t>(index.size()) / units;
  }
};

/// `size` units, each spread over all slices; `keep` is the share of units that survives, in (0, 1].
struct Group {
  std::string name;
  std::vector<Slice> slices;
  int64_t size = 0;
  double keep = 1.0;
  bool operator==(const Group&) const = default;
};

/// Group name -> bool[size]: the units that are alive.
using Masks = torch::OrderedDict<std::string, at::Tensor>;

}  // namespace prunex::sparsity
