// Eq. 15: what is alive, in one dense buffer without indices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "prunex/sparsity/projection.h"
#include "prunex/tensors.h"

namespace prunex::sparsity {

/// Copies the kept rows x columns of a list of tensors to and from one flat buffer, as runs of adjacent memory. Built
/// once per change of masks; the tensors handed to pack() and unpack() must have the names, shapes, strides and element
/// type of those it was built from. Dim 0 must be outermost in memory (row-major or channels_last).
class Compaction {
 public:
  Compaction() = default;
  /// Tensors without a support are kept whole.
  Compaction(const TensorDict& tensors, const Supports& supports);

  int64_t numel() const { return numel_; }

  /// buffer: numel() entries, contiguous.
  void pack(const TensorDict& tensors, at::Tensor& buffer) const;
  /// Writes zeros outside the supports.
  void unpack(const at::Tensor& buffer, TensorDict& tensors) const;

 private:
  struct Run {
    int64_t offset, length;  // in entries
  };
  /// One tensor: every inner run, at every outer offset; both ascend.
  struct Block {
    int64_t numel = 0;  // of the whole tensor
    int64_t kept = 0;
    int64_t width = 0;  // of what lies at an outer offset
    std::vector<int64_t> outer;
    std::vector<Run> inner;
    std::vector<int32_t> columns;  // where runs are short: the entries of inner one by one
    at::Tensor index;              // on a GPU, unless all is kept: every entry
    std::vector<int64_t> strides;
  };
  static Block block_of(const at::Tensor& tensor, const Support* support);
  static at::Tensor index_of(const Block& block, const at::Tensor& tensor);
  static void finish(Block& block, const at::Tensor& tensor);
  static char* pack(const Block& block, const char* from, char* to, size_t size);
  static const char* unpack(const Block& block, const char* from, char* to, size_t size);
  void pack_on_device(const TensorDict& tensors, at::Tensor& buffer) const;
  void unpack_on_device(const at::Tensor& buffer, TensorDict& tensors) const;
  void check(const TensorDict& tensors, const at::Tensor& buffer) const;

  std::vector<Block> blocks_;
  int64_t numel_ = 0;
};

}  // namespace prunex::sparsity
