// A communicator over Gloo's TCP transport.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/rendezvous.h"

namespace gloo::transport {
class Device;
}

namespace prunex::comm {

/// What a rank's messages go through, and the numeric address where it listens for them.
struct Network {
  std::shared_ptr<gloo::transport::Device> device;
  std::string address;
};

/// interface: a name such as eth0, or empty for loopback if one_machine, else for the address of the host name.
/// Throws std::invalid_argument if it has no address.
Network make_network(const std::string& interface, bool one_machine);

/// Connects the group's ranks pairwise; all of them must call. An operation waits for a message for `timeout` at most.
std::unique_ptr<RingCommunicator> make_gloo_communicator(const Group& group, Meeting meeting, const Network& network,
                                                         std::chrono::milliseconds timeout, const Guard& guard);

/// A Gloo error without places in Gloo's sources, and with one text for all the ways in which a connection ends.
std::string plain_text(const std::string& gloo_error);

}  // namespace prunex::comm
