#include "prunex/strategies/exchange/row_shards.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <stdexcept>

#include "prunex/strategies/dictionaries.h"

namespace prunex::strategies {
namespace {

int64_t row_count(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 1 : tensor.size(0);
}

at::Tensor rows_of(const at::Tensor& tensor, const comm::Range& rows) {
  const at::Tensor plain = tensor.detach();
  return (plain.dim() == 0 ? plain.view({1}) : plain).narrow(0, rows.begin, rows.size());
}

int64_t count_below(const std::vector<int64_t>& ascending, int64_t bound) {
  return std::lower_bound(ascending.begin(), ascending.end(), bound) - ascending.begin();
}

TensorDict vectors_of(const TensorDict& tensors) {
  TensorDict vectors;
  for (const auto& tensor : tensors) {
    if (tensor.value().dim() < 2) vectors.insert(tensor.key(), tensor.value());
  }
  return vectors;
}

}  // namespace

FlatTensors::FlatTensors(const TensorDict& like) {
  int64_t numel = 0;
  for (const auto& item : like) numel += item.value().numel();
  buffer = at::empty({numel}, like.front().value().options().memory_format(at::MemoryFormat::Contiguous));
  int64_t begin = 0;
  for (const auto& item : like) {
    const at::Tensor& tensor = item.value();
    TORCH_CHECK(tensor.is_non_overlapping_and_dense() && tensor.scalar_type() == buffer.scalar_type(), "[strategies] '",
                item.key(), "' cannot lie beside the others");
    tensors.insert(item.key(), buffer.as_strided(tensor.sizes(), tensor.strides(), begin));
    begin += tensor.numel();
  }
}

RowShards::RowShards(const TensorDict& tensors, int rails, int ranks) : rails_(rails), count_(ranks) {
  int64_t total = 0, before = 0;
  for (const auto& item : tensors) total += item.value().numel();
  for (const auto& item : tensors) {
    const int64_t rows = row_count(item.value()), numel = item.value().numel();
    const int64_t width = std::max<int64_t>(1, numel / std::max<int64_t>(1, rows));
    auto& first = first_rows_[item.key()];
    for (int shard = 0; shard < ranks; ++shard) {
      const int64_t begin = total * std::min(shard, rails) / rails;  // in entries of all tensors
      first.push_back(shard < rails ? std::clamp<int64_t>((begin - before + width / 2) / width, 0, rows) : rows);
    }
    first.front() = 0;
    first.push_back(rows);
    before += numel;
  }
}

comm::Range RowShards::range(const std::string& name, int shard) const {
  const auto& first = first_rows_.at(name);
  return {first[static_cast<size_t>(shard)], first[static_cast<size_t>(shard) + 1]};
}

std::vector<comm::Range> RowShards::parts(const TensorDict& tensors) const {
  std::vector<comm::Range> parts;
  int64_t end = 0;
  for (int shard = 0; shard < count_; ++shard) {
    const int64_t begin = end;
    for (const auto& item : rows(tensors, shard)) end += item.value().numel();
    parts.push_back({begin, end});
  }
  return parts;
}

at::Tensor RowShards::rows(const std::string& name, const at::Tensor& tensor, int shard) const {
  const auto mine = range(name, shard);
  return mine.empty() ? at::Tensor() : rows_of(tensor, mine);
}

TensorDict RowShards::rows(const TensorDict& tensors, int shard) const {
  TensorDict views;
  for (const auto& item : tensors) {
    const at::Tensor view = rows(item.key(), item.value(), shard);
    if (view.defined()) views.insert(item.key(), view);
  }
  return views;
}

sparsity::Supports RowShards::rows(const sparsity::Supports& supports, int shard) const {
  sparsity::Supports result;
  for (const auto& item : supports) {
    const auto mine = range(item.key(), shard);
    sparsity::Support support = item.value();
    if (support.rows.defined()) support.rows = support.rows.narrow(0, mine.begin, mine.size());
    if (!mine.empty()) result.insert(item.key(), support);
  }
  return result;
}

sparsity::Cut RowShards::rows(const sparsity::Cut& cut, int shard) const {
  sparsity::Cut result;
  for (const auto& [name, whole] : cut.tensors) {
    const auto known = first_rows_.find(name);
    if (known == first_rows_.end()) continue;
    const auto mine = range(name, shard);
    auto& own = result.tensors[name] = whole;
    if (own.shape.empty()) own.shape.push_back(1);  // without dimensions it counts as one row
    own.shape[0] = mine.size();
    const auto kept = own.kept.find(0);
    if (kept == own.kept.end()) continue;
    std::vector<int64_t> rows;
    for (const int64_t row : kept->second) {
      if (row >= mine.begin && row < mine.end) rows.push_back(row - mine.begin);
    }
    kept->second = rows;
  }
  return result;
}

void RowShards::cut(const sparsity::Cut& cut) {
  for (auto& [name, first] : first_rows_) {
    const auto& kept = cut.tensors.at(name).kept;
    const auto rows = kept.find(0);
    if (rows == kept.end()) continue;
    for (int64_t& row : first) row = count_below(rows->second, row);
  }
}

TensorDict RowShards::bounds() const {
  TensorDict bounds;
  for (const auto& [name, first] : first_rows_) {
    bounds.insert(name, at::tensor(at::ArrayRef<int64_t>(first).slice(0, static_cast<size_t>(rails_) + 1), at::kLong));
  }
  return bounds;
}

void RowShards::set_bounds(const TensorDict& bounds, const std::string& prefix) {
  for (auto& [name, first] : first_rows_) {
    const at::Tensor saved_bounds = saved(bounds, prefix + name, {rails_ + 1}, at::kLong);
    const int64_t* begin = saved_bounds.const_data_ptr<int64_t>();
    const bool fits = begin[0] == 0 && begin[rails_] == first.back() && std::is_sorted(begin, begin + rails_ + 1);
    if (!fits) throw std::invalid_argument("tensor " + prefix + name + " does not divide its rows");
    std::copy(begin, begin + rails_, first.begin());
  }
}

ShardedCompaction::ShardedCompaction(const RowShards& shards, const TensorDict& tensors,
                                     const sparsity::Supports& supports)
    : shards_(shards) {
  int64_t end = 0;
  for (const auto& item : supports) full_ = full_ && (item.value().full() || tensors.find(item.key()) == nullptr);
  for (int shard = 0; shard < shards.count(); ++shard) {
    const TensorDict rows = shards.rows(tensors, shard);
    const auto rows_of_supports = shards.rows(supports, shard);
    plans_.emplace_back(rows, rows_of_supports);
    parts_.push_back({end, end + plans_.back().numel()});
    end = parts_.back().end;
    vector_entries_.push_back(sparsity::Compaction(vectors_of(rows), rows_of_supports).numel());
  }
}

at::Tensor ShardedCompaction::part_of(const at::Tensor& buffer, int shard) const {
  return comm::slice(buffer, parts_[static_cast<size_t>(shard)]);
}

void ShardedCompaction::pack(const TensorDict& tensors, at::Tensor& buffer) const {
  for (int shard = 0; shard < shards_.count(); ++shard) pack(tensors, buffer, shard);
}

void ShardedCompaction::pack(const TensorDict& tensors, at::Tensor& buffer, int shard) const {
  at::Tensor part = part_of(buffer, shard);
  pack_rows(shards_.rows(tensors, shard), part, shard);
}

void ShardedCompaction::unpack(const at::Tensor& buffer, const TensorDict& tensors) const {
  for (int shard = 0; shard < shards_.count(); ++shard) unpack(buffer, tensors, shard);
}

void ShardedCompaction::unpack(const at::Tensor& buffer, const TensorDict& tensors, int shard) const {
  TensorDict rows = shards_.rows(tensors, shard);
  unpack_rows(part_of(buffer, shard), rows, shard);
}

void ShardedCompaction::pack_rows(const TensorDict& rows, at::Tensor& part, int shard) const {
  RECORD_FUNCTION("prunex::pack", std::vector<c10::IValue>{part});
  plans_[static_cast<size_t>(shard)].pack(rows, part);
}

void ShardedCompaction::unpack_rows(const at::Tensor& part, TensorDict& rows, int shard) const {
  RECORD_FUNCTION("prunex::unpack", std::vector<c10::IValue>{part});
  plans_[static_cast<size_t>(shard)].unpack(part, rows);
}

}  // namespace prunex::strategies
