// Ranks as threads of one process, over the real Gloo: for tests and benchmarks.
#pragma once

#include <functional>

#include "prunex/comm/gloo/connect.h"

namespace prunex::comm {

/// Runs body once per rank of the shape (whose own rank does not matter), each on its own thread with ATen at one
/// thread, connected over loopback. Returns when all are done. If ranks throw, the connections of the first one are
/// closed, so that the others fail instead of waiting, and its exception is rethrown. Threads need no heartbeat.
void run_ranks(const Layout& shape, const std::function<void(Hierarchy&)>& body,
               const GlooOptions& options = {.heartbeat_timeout = std::chrono::milliseconds(0)});

/// The same, with the same number of ranks on every node.
void run_ranks(int nodes, int ranks_per_node, const std::function<void(Hierarchy&)>& body,
               const GlooOptions& options = {.heartbeat_timeout = std::chrono::milliseconds(0)});

}  // namespace prunex::comm
