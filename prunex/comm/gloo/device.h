// The network interfaces that Gloo uses.
#pragma once

#include <memory>
#include <string>

namespace gloo::transport {
class Device;
}

namespace prunex::comm {

/// Names this machine's network stack: ranks with equal names reach each other over loopback.
std::string network_identity();

/// What a rank's messages go through, and the numeric address where it listens for them.
struct Network {
  std::shared_ptr<gloo::transport::Device> device;
  std::string address;
};

/// interface: a name such as eth0, or empty for loopback if one_machine, else for the address of the host name.
/// Throws std::invalid_argument if it has no address.
Network make_network(const std::string& interface, bool one_machine);

}  // namespace prunex::comm
