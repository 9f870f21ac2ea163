// The ranks of a node meet in shared memory, or agree to do without.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "prunex/comm/layout.h"
#include "prunex/comm/shm/node_memory.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

struct SharedMemory {
  std::shared_ptr<NodeMemory> memory;  ///< null on all ranks of the node if one of them could not have it
  std::string problem;                 ///< why
};

/// All ranks of the node must call.
SharedMemory share_memory(const Layout& layout, Store& store, std::chrono::milliseconds timeout);

}  // namespace prunex::comm
