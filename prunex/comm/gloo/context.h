// Gloo's side of a group: its pairs, connected.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/gloo/device.h"
#include "prunex/comm/group.h"
#include "prunex/comm/rendezvous.h"

namespace gloo {
class Context;
}

namespace prunex::comm {

/// Connects the members of a group, of more than one, pairwise; all must call. Gloo takes whoever comes first to a
/// pair's port for the peer: so ports are told to nobody but the peer, over a connection that both know (peer_sockets),
/// and are open only for the moments until it has come. Throws std::runtime_error that names a rank.
std::shared_ptr<gloo::Context> connect_context(const Group& group, const Network& network, Meeting meeting);

/// A Gloo error without places in Gloo's sources, and with one text for all the ways in which a connection ends.
std::string plain_text(const std::string& gloo_error);

}  // namespace prunex::comm
