// What the kernel counts on an interface.
#pragma once

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace prunex::tests {

/// Bytes that left over an interface, as the kernel counts them in this thread's network namespace.
inline int64_t interface_bytes(const std::string& name) {
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find(name) == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::vector<int64_t> values{std::istream_iterator<int64_t>(fields), {}};
    return values.at(8);
  }
  throw std::runtime_error("no interface " + name + " in /proc/thread-self/net/dev");
}

/// Gives the calling thread, and those it starts, a loopback interface of its own; false where that is not permitted.
inline bool enter_private_network() {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int control = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(control, SIOCSIFFLAGS, &request) == 0;
  close(control);
  return up;
}

}  // namespace prunex::tests
