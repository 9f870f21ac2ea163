// An all-reduce over all ranks in which the work inside the nodes hides behind the wire.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "prunex/comm/gloo/gloo_communicator.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/shm/node_guard.h"

namespace prunex::comm {

/// Every rail runs a ring over its shard; chunk by chunk it adds up what the ranks of its node have put into their
/// shared memory, and leaves the results there. Counts its bytes on the node's and the rail's communicators by the
/// formulas of reduce_scatter, all_reduce and all_gather_parts.
class Pipeline {
 public:
  /// Borrows the groups of this rank. The guard's memory is the node's.
  Pipeline(const Layout& layout, Communicator& node, RingCommunicator& rail, const NodeGuard& guard);

  /// tensor <- sum over all ranks; one-dimensional, contiguous, float or double. Bit-identical on all ranks.
  void all_reduce(at::Tensor& tensor);

 private:
  struct Window;
  void reduce_or_fail(Window& window);
  void reduce(Window& window);
  void run_rail(Window& window);
  void copy_in(const Window& window, int64_t block, int64_t chunk);
  void combine(Window& window, Range piece, const void* received);
  void drain(Window& window, bool wait);

  const Layout layout_;
  Communicator& node_;
  RingCommunicator& rail_;
  std::shared_ptr<NodeMemory> memory_;
  const NodeGuard guard_;
};

}  // namespace prunex::comm
