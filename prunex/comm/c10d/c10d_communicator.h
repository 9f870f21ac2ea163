// Groups of torch.distributed: what a c10d::ProcessGroup connects, whatever its backend is.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "prunex/comm/backend.h"
#include "prunex/comm/hierarchy.h"

namespace c10d {
class ProcessGroup;
}

namespace prunex::comm {

/// A group over the process group, which has its ranks in the same order. Serves the devices that it has a backend for.
/// Sums of all_reduce are taken in the backend's order; reduce_scatter's in the order of ranks. An operation takes at
/// most `timeout`. abort() aborts the process group.
std::unique_ptr<Communicator> make_c10d_communicator(const Group& group,
                                                     c10::intrusive_ptr<::c10d::ProcessGroup> process_group,
                                                     std::chrono::milliseconds timeout, const Guard& guard);

/// What the ranks of a layout have of torch.distributed. Null where a rank would be alone.
struct ProcessGroups {
  c10::intrusive_ptr<::c10d::ProcessGroup> world, node, rail;
};

/// A rank's groups over them, in the order of ranks; no sites, no shared memory, no heartbeat. Collective calls of
/// others on the same process groups must keep one order with those of the hierarchy on all ranks.
Hierarchy make_hierarchy(const Layout& layout, const ProcessGroups& groups, std::chrono::milliseconds timeout,
                         const Guard& guard);

}  // namespace prunex::comm
