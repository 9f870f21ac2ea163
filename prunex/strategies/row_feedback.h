// Error feedback of one rank's rows, between exchanges.
#pragma once

#include "prunex/strategies/compressed_mean.h"
#include "prunex/strategies/row_shards.h"

namespace prunex::strategies {

/// Kept by tensor, because the buffer of an exchange changes with the masks. What is dead owes nothing.
class RowFeedback {
 public:
  /// Zeros for the rows that `shard` has of the tensors. `shards` must outlive it.
  RowFeedback(const RowShards& shards, const TensorDict& tensors, int shard);

  /// As buffers like the shard's part of the plan's buffer; and back.
  Feedback pack(const ShardedCompaction& plan) const;
  void unpack(const Feedback& feedback, const ShardedCompaction& plan);

  /// `shards` are those before the cut.
  void cut(const sparsity::Cut& cut);
  void save(TensorDict& state) const;
  void load(const TensorDict& state);

 private:
  const RowShards& shards_;
  int shard_;
  TensorDict sent_, returned_;
};

}  // namespace prunex::strategies
