// Groups over the shared memory of one node.
#pragma once

#include <memory>

#include "prunex/comm/backend.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/comm/shm/node_memory.h"

namespace prunex::comm {

/// The memory may serve other operations too, one after the other.
std::unique_ptr<Communicator> make_shm_communicator(const Group& group, std::shared_ptr<NodeMemory> memory,
                                                    const Guard& guard);

/// Every rail runs a ring over its shard; chunk by chunk it adds up what the ranks of its node have put into their
/// memory, and leaves the results there. Borrows the groups of this rank, of which `node` is over the same memory.
std::unique_ptr<Pipeline> make_pipeline(const Layout& layout, Communicator& node, RingCommunicator& rail,
                                        std::shared_ptr<NodeMemory> memory);

}  // namespace prunex::comm
