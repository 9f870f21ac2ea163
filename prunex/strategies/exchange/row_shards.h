// Which local rank keeps the node's state for which rows of every tensor, and how they lie in one buffer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/sparsity/compaction.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/projection.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// Tensors that lie one after the other in one buffer: what is done to it is done to them.
struct FlatTensors {
  FlatTensors() = default;
  /// Of the names, shapes and layouts of dense tensors of one type; not filled.
  explicit FlatTensors(const TensorDict& like);

  at::Tensor buffer;   ///< one-dimensional
  TensorDict tensors;  ///< views of it
};

/// Consecutive rows (slices of dim 0) in the order of the tensors, so that a shard is one range of the dense buffer.
class RowShards {
 public:
  RowShards() = default;
  /// One shard per local rank: the first `rails` hold about equally many entries, the others nothing.
  RowShards(const TensorDict& tensors, int rails, int ranks);

  int count() const { return count_; }
  /// Where the shards lie in FlatTensors of these tensors.
  std::vector<comm::Range> parts(const TensorDict& tensors) const;
  /// A view of the shard's rows; undefined if it has none.
  at::Tensor rows(const std::string& name, const at::Tensor& tensor, int shard) const;
  /// Views of the shard's rows; tensors without any are left out. Tensors without dimensions count as one row.
  TensorDict rows(const TensorDict& tensors, int shard) const;
  /// What supports say of these rows.
  sparsity::Supports rows(const sparsity::Supports& supports, int shard) const;
  /// What a cut leaves of these rows; for state that is kept of rows alone.
  sparsity::Cut rows(const sparsity::Cut& cut, int shard) const;
  /// The tensors were cut: every row stays with its shard.
  void cut(const sparsity::Cut& cut);

  /// Of every tensor int64[rails + 1]: the first row of each shard that holds something, and the number of rows.
  TensorDict bounds() const;
  /// `bounds` holds those of the same tensors, by their names behind `prefix`. Throws std::invalid_argument that says
  /// what does not fit.
  void set_bounds(const TensorDict& bounds, const std::string& prefix);

 private:
  comm::Range range(const std::string& name, int shard) const;

  int rails_ = 0, count_ = 0;
  std::map<std::string, std::vector<int64_t>> first_rows_;  // of each shard, and the number of rows
};

/// Eq. 15 for shards: what is alive, one shard after the other in one flat buffer.
class ShardedCompaction {
 public:
  ShardedCompaction() = default;
  ShardedCompaction(const RowShards& shards, const TensorDict& tensors, const sparsity::Supports& supports);

  int64_t numel() const { return parts_.empty() ? 0 : parts_.back().end; }
  /// Whether everything is alive: then FlatTensors lie as pack() would lay them.
  bool full() const { return full_; }
  /// The shards' ranges of the buffer.
  const std::vector<comm::Range>& parts() const { return parts_; }

  /// A view of the shard's range.
  at::Tensor part_of(const at::Tensor& buffer, int shard) const;

  /// `tensors` are whole, the buffer has numel() entries. Unpacking writes zeros outside the supports.
  void pack(const TensorDict& tensors, at::Tensor& buffer) const;
  void pack(const TensorDict& tensors, at::Tensor& buffer, int shard) const;
  void unpack(const at::Tensor& buffer, const TensorDict& tensors) const;
  void unpack(const at::Tensor& buffer, const TensorDict& tensors, int shard) const;
  /// The same for the rows of one shard and its part of the buffer.
  void pack_rows(const TensorDict& rows, at::Tensor& part, int shard) const;
  void unpack_rows(const at::Tensor& part, TensorDict& rows, int shard) const;

  /// Entries of tensors with one dimension in the shard's part.
  int64_t vector_entries(int shard) const { return vector_entries_[static_cast<size_t>(shard)]; }

 private:
  RowShards shards_;
  std::vector<sparsity::Compaction> plans_;
  std::vector<comm::Range> parts_;
  std::vector<int64_t> vector_entries_;
  bool full_ = true;
};

}  // namespace prunex::strategies
