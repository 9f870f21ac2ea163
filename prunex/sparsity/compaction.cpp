#include "prunex/sparsity/compaction.h"

#include <ATen/ATen.h>

#include <cstring>

namespace prunex::sparsity {
namespace {

/// alive[i]: whether the entry at memory offset i of a row is kept.
std::vector<bool> alive_in_memory_order(const at::Tensor& tensor, const at::Tensor& columns) {
  const int64_t width = tensor.numel() / tensor.size(0);
  std::vector<bool> alive(width, true);
  if (!columns.defined()) return alive;
  const at::Tensor flat = columns.contiguous();
  const bool* mask = flat.const_data_ptr<bool>();
  for (int64_t column = 0; column < width; ++column) {
    int64_t offset = 0, rest = column;
    for (int64_t d = tensor.dim() - 1; d > 0; --d) {
      offset += (rest % tensor.size(d)) * tensor.stride(d);
      rest /= tensor.size(d);
    }
    alive[offset] = mask[column];
  }
  return alive;
}

template <class Alive, class Emit>
void for_each_run(int64_t length, const Alive& alive, const Emit& emit) {
  for (int64_t i = 0; i < length;) {
    if (!alive(i)) {
      ++i;
      continue;
    }
    const int64_t begin = i;
    while (i < length && alive(i)) ++i;
    emit(begin, i - begin);
  }
}

}  // namespace

Compaction::Block Compaction::block_of(const at::Tensor& tensor, const Support* support) {
  Block block;
  block.numel = tensor.numel();
  block.strides = tensor.strides().vec();
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "[sparsity] a packed tensor must be dense in memory");
  if (tensor.dim() == 0 || support == nullptr || support->full()) {
    block.outer = {0};
    block.inner = {{0, tensor.numel()}};
    return block;
  }
  const int64_t rows = tensor.size(0), width = tensor.numel() / rows;
  TORCH_CHECK(rows == 1 || tensor.stride(0) == width,
              "[sparsity] dim 0 of a packed tensor must be outermost in memory");
  const at::Tensor row_mask = support->rows.defined() ? support->rows.contiguous() : at::ones({rows}, at::kBool);
  const bool* row_alive = row_mask.const_data_ptr<bool>();
  if (!support->columns.defined()) {  // whole rows: adjacent ones are one run
    block.outer = {0};
    for_each_run(
        rows, [&](int64_t r) { return row_alive[r]; },
        [&](int64_t begin, int64_t n) {
          block.inner.push_back({begin * width, n * width});
        });
    return block;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (row_alive[r]) block.outer.push_back(r * width);
  }
  const auto alive = alive_in_memory_order(tensor, support->columns);
  for_each_run(
      width, [&](int64_t i) { return alive[i]; },
      [&](int64_t begin, int64_t n) {
        block.inner.push_back({begin, n});
      });
  return block;
}

Compaction::Compaction(const TensorDict& tensors, const Supports& supports) {
  for (const auto& item : tensors) {
    blocks_.push_back(block_of(item.value(), supports.find(item.key())));
    int64_t per_row = 0;
    for (const Run& run : blocks_.back().inner) per_row += run.length;
    numel_ += per_row * static_cast<int64_t>(blocks_.back().outer.size());
  }
}

void Compaction::check(const TensorDict& tensors, const at::Tensor& buffer) const {
  TORCH_CHECK(tensors.size() == blocks_.size(), "[sparsity] packing ", tensors.size(), " tensors with a plan for ",
              blocks_.size());
  TORCH_CHECK(buffer.numel() == numel_ && buffer.is_contiguous(), "[sparsity] a buffer of ", buffer.numel(),
              " entries, wanted ", numel_, ", contiguous");
  for (size_t t = 0; t < blocks_.size(); ++t) {
    TORCH_CHECK(tensors[t].value().numel() == blocks_[t].numel &&
                    tensors[t].value().strides() == at::IntArrayRef(blocks_[t].strides),
                "[sparsity] tensor '", tensors.keys()[t], "' changed its shape or layout since the plan was made");
    TORCH_CHECK(tensors[t].value().scalar_type() == buffer.scalar_type(),
                "[sparsity] tensor and buffer differ in type");
  }
}

void Compaction::pack(const TensorDict& tensors, at::Tensor& buffer) const {
  check(tensors, buffer);
  const size_t size = buffer.element_size();
  char* to = static_cast<char*>(buffer.data_ptr());
  for (size_t t = 0; t < blocks_.size(); ++t) {
    const char* from = static_cast<const char*>(tensors[t].value().const_data_ptr());
    for (int64_t outer : blocks_[t].outer) {
      for (const Run& run : blocks_[t].inner) {
        std::memcpy(to, from + (outer + run.offset) * size, run.length * size);
        to += run.length * size;
      }
    }
  }
}

void Compaction::unpack(const at::Tensor& buffer, TensorDict& tensors) const {
  check(tensors, buffer);
  const size_t size = buffer.element_size();
  const char* from = static_cast<const char*>(buffer.const_data_ptr());
  for (size_t t = 0; t < blocks_.size(); ++t) {
    char* to = static_cast<char*>(tensors[t].value().data_ptr());
    std::memset(to, 0, blocks_[t].numel * size);
    for (int64_t outer : blocks_[t].outer) {
      for (const Run& run : blocks_[t].inner) {
        std::memcpy(to + (outer + run.offset) * size, from, run.length * size);
        from += run.length * size;
      }
    }
  }
}

}  // namespace prunex::sparsity
