// Groups of ranks that have a GPU each, or share one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/group.h"
#include "prunex/comm/journal.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/nccl/nccl_communicator.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

/// Gives groups that serve the CPU a second backend for GPUs.
class DeviceGroups {
 public:
  /// gpus: the identity of every rank's GPU, in the order of ranks; what else a communicator needs is borrowed.
  DeviceGroups(std::vector<std::string> gpus, Store& store, const Timeouts& timeouts, const Guard& guard)
      : gpus_(std::move(gpus)), store_(store), timeouts_(timeouts), guard_(guard) {}

  /// Over NCCL if no two members share a GPU, else through the host. All members must call.
  std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> host, const Group& group,
                                       const std::shared_ptr<Journal>& journal) const;

  /// Two ranks of the run that share a GPU, in words; empty if there are none.
  std::string sharing() const;

 private:
  std::vector<int> first_pair(const std::vector<int>& ranks) const;

  std::vector<std::string> gpus_;
  Store& store_;
  Timeouts timeouts_;
  Guard guard_;
};

/// This rank's GPU, for the calling thread: number i of those it sees, for the i-th of the ranks on its machine.
/// machines: of every rank, in their order.
Gpu choose_gpu(const std::vector<std::string>& machines, const Layout& layout);

}  // namespace prunex::comm
