// A communicator over the shared memory of one node.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/communicator.h"
#include "prunex/comm/gloo/gloo_communicator.h"
#include "prunex/comm/shm/node_memory.h"

namespace prunex::comm {

/// rank_in_run is for messages. The memory may serve other operations too, one after the other.
std::unique_ptr<Communicator> make_shm_communicator(std::string name, int rank_in_run,
                                                    std::shared_ptr<NodeMemory> memory, const GlooGuard& guard);

}  // namespace prunex::comm
