// The ranks of a node meet in shared memory, or agree to do without.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/layout.h"
#include "prunex/comm/rendezvous.h"
#include "prunex/comm/shm/node_memory.h"

namespace prunex::comm {

struct SharedMemory {
  std::shared_ptr<NodeMemory> memory;  ///< null on all ranks of the node if one of them could not have it
  std::string problem;                 ///< why
};

/// All ranks of the node must call.
SharedMemory share_memory(const Layout& layout, Meeting meeting);

}  // namespace prunex::comm
