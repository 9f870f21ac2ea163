#include "prunex/comm/gloo/device.h"

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "prunex/comm/addresses.h"

namespace prunex::comm {

std::string network_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return host_name() + " " + boot + " " + std::filesystem::read_symlink("/proc/thread-self/ns/net", ignored).string();
}

Network make_network(const std::string& interface, bool one_machine) {
  const auto address = !interface.empty() ? address_of_interface(interface)
                       : one_machine      ? "127.0.0.1"
                                          : address_of_host_name();
  try {
    return {gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str())), address};
  } catch (const std::exception&) {  // with places in Gloo's sources
    throw std::runtime_error(
        fmt::format("[comm] address {}: no socket can use it; wanted one of this machine's, and "
                    "descriptors to spare (ulimit -n)",
                    address));
  }
}

}  // namespace prunex::comm
