// Connections of every rank of a group with every other one.
#pragma once

#include <map>
#include <string>

#include "prunex/comm/group.h"
#include "prunex/comm/rendezvous.h"
#include "prunex/comm/socket.h"

namespace prunex::comm {

/// Connects the members of a group pairwise, over this rank's address; all must call. A connection counts only if it
/// begins with a number that its caller read in the store: whoever tries ports is turned away and holds nobody up.
/// Throws std::runtime_error that names a rank that did not come. Returned by their ranks in the group.
std::map<int, Socket> connect_peers(const Group& group, const std::string& address, Meeting meeting);

}  // namespace prunex::comm
