// The network interfaces that Gloo uses.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace gloo::transport {
class Device;
}

namespace prunex::comm {

/// Names this machine's network stack: ranks with equal names reach each other over loopback.
std::string network_identity();

/// Throws std::invalid_argument for the first of these that is no interface with an address.
void check_interfaces(const std::vector<std::string>& names);

/// interface: a name such as eth0, or empty for loopback if one_machine, else for the address of the host name.
/// Throws std::invalid_argument if it has no address.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& interface, bool one_machine);

/// The numeric address that the device listens on.
std::string address_of(const gloo::transport::Device& device);

}  // namespace prunex::comm
