// The paper's leader-follower form of an exchange: sum in the node, leaders talk over the network, broadcast in the
// node.
#pragma once

#include <ATen/core/Tensor.h>

#include "prunex/comm/hierarchy.h"

namespace prunex::strategies {

/// Two-level collectives. Local rank 0 of every node is its leader; only leaders use the links between nodes. All calls
/// are made by all ranks, in place on contiguous buffers; afterwards the result is bit-identical on every rank.
class LeaderExchange {
 public:
  /// Borrows the groups.
  explicit LeaderExchange(comm::Hierarchy& groups) : groups_(groups) {}

  /// buffer <- sum over the ranks of this node.
  void sum_in_node(at::Tensor& buffer);
  /// buffer <- reduction over nodes of a buffer that is equal on all ranks of a node.
  void reduce_over_nodes(at::Tensor& buffer, comm::Reduce reduce = comm::Reduce::kSum);
  /// buffer <- sum over all ranks.
  void sum_over_ranks(at::Tensor& buffer);

  int nodes() const { return groups_.layout.nodes(); }
  int ranks_here() const { return groups_.layout.ranks_here(); }

 private:
  bool leader() const { return groups_.layout.local_rank() == 0; }

  comm::Hierarchy& groups_;
};

}  // namespace prunex::strategies
