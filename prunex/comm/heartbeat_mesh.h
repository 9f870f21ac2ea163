// The connections of the heartbeat.
#pragma once

#include <map>

#include "prunex/comm/heartbeat.h"
#include "prunex/comm/socket.h"

namespace prunex::comm {

/// Connects every rank with every other one. All ranks must call; the store is not needed any more then. Throws
/// std::runtime_error that names the ranks that did not come.
std::map<int, Socket> connect_heartbeats(Place place, Store& store, const HeartbeatOptions& options);

}  // namespace prunex::comm
