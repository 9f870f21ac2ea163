// Host names, network interfaces and their numeric addresses.
#pragma once

#include <string>
#include <vector>

#include "prunex/comm/socket.h"

namespace prunex::comm {

/// What a host name stands for: numeric addresses, or why there are none.
struct Resolution {
  std::vector<std::string> hosts;
  std::string problem;
};

/// Asks the name service, until the deadline at most.
Resolution resolve_host(const std::string& name, Deadline deadline);

/// Whether the address is one of this machine's.
bool is_own_address(const std::string& host);
bool is_loopback(const std::string& host);

/// Throws std::invalid_argument for the first of these that is no interface with an address.
void check_interfaces(const std::vector<std::string>& names);
/// The first address of an interface. Throws as check_interfaces.
std::string address_of_interface(const std::string& name);

std::string host_name();
/// The address of this machine's host name. Throws std::invalid_argument that asks for --interface if it is loopback or
/// none of this machine's.
std::string address_of_host_name();

}  // namespace prunex::comm
