// A communicator over the shared memory of one node.
#pragma once

#include <memory>

#include "prunex/comm/communicator.h"
#include "prunex/comm/shm/node_guard.h"

namespace prunex::comm {

/// The memory may serve other operations too, one after the other.
std::unique_ptr<Communicator> make_shm_communicator(const NodeGuard& guard);

}  // namespace prunex::comm
