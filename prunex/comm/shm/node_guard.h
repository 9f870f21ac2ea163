// What is said when an operation over a node's shared memory fails.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/group.h"
#include "prunex/comm/shm/node_memory.h"

namespace prunex::comm {

struct NodeGuard {
  int rank = 0;       ///< in the run
  std::string group;  ///< whose memory it is
  std::shared_ptr<NodeMemory> memory;
  Guard guard;

  /// Ends the waits of the other ranks of the node and throws std::runtime_error with the operation, the group and the
  /// reason: that of the abort switch, or else the exception that is being handled.
  [[noreturn]] void fail(const char* operation) const;
};

}  // namespace prunex::comm
