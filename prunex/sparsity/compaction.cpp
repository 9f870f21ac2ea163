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

constexpr int64_t kShortRun = 16;  // entries; below it a call of memcpy costs more than what it copies

/// to[i] = from[columns[i]]
template <size_t kSize>
void gather(const std::vector<int32_t>& columns, const char* from, char* to) {
  for (const int32_t column : columns) {
    std::memcpy(to, from + column * kSize, kSize);
    to += kSize;
  }
}

/// to[columns[i]] = from[i]
template <size_t kSize>
void scatter(const std::vector<int32_t>& columns, const char* from, char* to) {
  for (const int32_t column : columns) {
    std::memcpy(to + column * kSize, from, kSize);
    from += kSize;
  }
}

}  // namespace

Compaction::Block Compaction::block_of(const at::Tensor& tensor, const Support* support) {
  Block block;
  block.numel = block.width = tensor.numel();
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
  block.width = width;
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

/// How the runs are walked.
void Compaction::finish(Block& block, const at::Tensor& tensor) {
  int64_t per_row = 0;
  for (const Run& run : block.inner) per_row += run.length;
  block.kept = per_row * static_cast<int64_t>(block.outer.size());
  if (per_row < kShortRun * static_cast<int64_t>(block.inner.size())) {
    for (const Run& run : block.inner) {
      for (int64_t i = 0; i < run.length; ++i) block.columns.push_back(static_cast<int32_t>(run.offset + i));
    }
  }
  if (!tensor.is_cpu() && block.kept < block.numel) block.index = index_of(block, tensor);
}

/// Made where the tensor is, of the offsets of its rows and of what is kept in each: entries are many.
at::Tensor Compaction::index_of(const Block& block, const at::Tensor& tensor) {
  const bool whole_rows = block.width == block.numel && tensor.size(0) > 1;
  std::vector<int64_t> rows = whole_rows ? std::vector<int64_t>() : block.outer, in_row;
  const int64_t row = tensor.numel() / tensor.size(0);
  for (const Run& run : block.inner) {
    for (int64_t i = 0; i < run.length; i += whole_rows ? row : 1) {
      (whole_rows ? rows : in_row).push_back(run.offset + i);
    }
  }
  const auto there = [&](const std::vector<int64_t>& offsets) {
    return at::tensor(offsets, at::kLong).to(tensor.device());
  };
  const at::Tensor columns = whole_rows ? at::arange(row, tensor.options().dtype(at::kLong)) : there(in_row);
  return (there(rows).view({-1, 1}) + columns).flatten();
}

Compaction::Compaction(const TensorDict& tensors, const Supports& supports) {
  for (const auto& item : tensors) {
    blocks_.push_back(block_of(item.value(), supports.find(item.key())));
    finish(blocks_.back(), item.value());
    numel_ += blocks_.back().kept;
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

char* Compaction::pack(const Block& block, const char* from, char* to, size_t size) {
  for (const int64_t outer : block.outer) {
    const char* row = from + outer * size;
    if (!block.columns.empty() && (size == 4 || size == 8)) {
      size == 4 ? gather<4>(block.columns, row, to) : gather<8>(block.columns, row, to);
      to += block.columns.size() * size;
      continue;
    }
    for (const Run& run : block.inner) {
      std::memcpy(to, row + run.offset * size, run.length * size);
      to += run.length * size;
    }
  }
  return to;
}

void Compaction::pack(const TensorDict& tensors, at::Tensor& buffer) const {
  check(tensors, buffer);
  if (!buffer.is_cpu()) return pack_on_device(tensors, buffer);
  char* to = static_cast<char*>(buffer.data_ptr());
  for (size_t t = 0; t < blocks_.size(); ++t) {
    to = pack(blocks_[t], static_cast<const char*>(tensors[t].value().const_data_ptr()), to, buffer.element_size());
  }
}

/// Zeros go into the gaps only: memory is written once.
const char* Compaction::unpack(const Block& block, const char* from, char* to, size_t size) {
  int64_t end = 0;  // of what is written, in entries
  const auto clear_until = [&](int64_t begin) { std::memset(to + end * size, 0, (begin - end) * size); };
  for (const int64_t outer : block.outer) {
    if (!block.columns.empty() && (size == 4 || size == 8)) {
      clear_until(outer + block.width);  // a row is in the cache when its entries follow
      char* row = to + outer * size;
      size == 4 ? scatter<4>(block.columns, from, row) : scatter<8>(block.columns, from, row);
      from += block.columns.size() * size;
      end = outer + block.width;
      continue;
    }
    for (const Run& run : block.inner) {
      const int64_t begin = outer + run.offset;
      clear_until(begin);
      std::memcpy(to + begin * size, from, run.length * size);
      from += run.length * size;
      end = begin + run.length;
    }
  }
  clear_until(block.numel);
  return from;
}

void Compaction::unpack(const at::Tensor& buffer, TensorDict& tensors) const {
  check(tensors, buffer);
  if (!buffer.is_cpu()) return unpack_on_device(buffer, tensors);
  const char* from = static_cast<const char*>(buffer.const_data_ptr());
  for (size_t t = 0; t < blocks_.size(); ++t) {
    from = unpack(blocks_[t], from, static_cast<char*>(tensors[t].value().data_ptr()), buffer.element_size());
  }
}

void Compaction::pack_on_device(const TensorDict& tensors, at::Tensor& buffer) const {
  int64_t offset = 0;
  for (size_t t = 0; t < blocks_.size(); ++t) {
    const Block& block = blocks_[t];
    const at::Tensor entries = in_memory_order(tensors[t].value());
    at::Tensor part = buffer.narrow(0, offset, block.kept);
    block.index.defined() ? part.copy_(entries.index_select(0, block.index)) : part.copy_(entries);
    offset += block.kept;
  }
}

void Compaction::unpack_on_device(const at::Tensor& buffer, TensorDict& tensors) const {
  int64_t offset = 0;
  for (size_t t = 0; t < blocks_.size(); ++t) {
    const Block& block = blocks_[t];
    at::Tensor entries = in_memory_order(tensors[t].value());
    const at::Tensor part = buffer.narrow(0, offset, block.kept);
    block.index.defined() ? entries.zero_().index_copy_(0, block.index, part) : entries.copy_(part);
    offset += block.kept;
  }
}

}  // namespace prunex::sparsity
