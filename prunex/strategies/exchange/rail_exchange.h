// The two levels of an exchange: inside a node, and along rails between nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/exchange/payload.h"

namespace prunex::strategies {

/// Two-level collectives on one-dimensional buffers. A buffer is divided in one part per local rank; those beyond the
/// number of rails are empty. All calls are made by all ranks, in place; what all ranks hold afterwards is
/// bit-identical.
class RailExchange {
 public:
  /// Borrows the groups.
  explicit RailExchange(comm::Hierarchy& groups, ExchangeForm form = ExchangeForm::kSharded);

  const comm::Layout& layout() const { return groups_.layout; }
  comm::Communicator& node() { return *groups_.node; }
  /// Local ranks that use the links between nodes.
  int rails() const { return rails_; }
  /// Of this node in the next mean: Hierarchy::share.
  double share() const { return groups_.share; }
  /// My local index, which is that of my part.
  int mine() const { return groups_.layout.local_rank(); }

  /// buffer <- sum over the ranks of this node.
  void sum_in_node(at::Tensor& buffer);
  /// My part <- its sum over the ranks of this node.
  void scatter_in_node(at::Tensor& buffer, const std::vector<comm::Range>& parts);
  /// Every part <- what its local rank has there.
  void gather_in_node(at::Tensor& buffer, const std::vector<comm::Range>& parts);
  /// Along my rail: part <- its reduction over nodes. Nothing happens on a rank without a rail.
  void reduce_over_nodes(at::Tensor& part, comm::Reduce reduce = comm::Reduce::kSum);
  /// Along my rail: part <- about its mean over nodes, rounded as the codec says.
  void compressed_mean_over_nodes(const Codec& codec, at::Tensor& part, EntryCounts counts,
                                  Feedback* feedback = nullptr);
  /// buffer, which is equal on all ranks of a node, <- its union over nodes.
  void unite_over_nodes(at::Tensor& buffer);
  /// buffer <- sum over all ranks.
  void sum_over_ranks(at::Tensor& buffer);
  /// buffer <- mean over all ranks, rounded between nodes as the codec says.
  void mean_over_ranks(at::Tensor& buffer, const Codec& codec = Codec(Payload::kFp32));
  /// Each tensor, in any dense layout, <- its mean over all ranks; in one buffer.
  void mean_over_ranks(const std::vector<at::Tensor>& tensors);

 private:
  std::vector<comm::Range> even_parts(int64_t numel) const;

  comm::Hierarchy& groups_;
  ExchangeForm form_;
  int rails_;
};

}  // namespace prunex::strategies
