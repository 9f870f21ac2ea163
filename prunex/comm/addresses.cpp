#include "prunex/comm/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace prunex::comm {
namespace {

struct InterfaceAddress {
  std::string name, host;
};

// "10.0.0.1", "fe80::1%eth0"; empty if it is of another family.
std::string numeric(const sockaddr* address) {
  if (address == nullptr) return "";
  const bool v4 = address->sa_family == AF_INET;
  if (!v4 && address->sa_family != AF_INET6) return "";
  char host[NI_MAXHOST] = {};
  const socklen_t length = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

// Of the interfaces that are up.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto host = numeric(entry->ifa_addr);
    if (!host.empty() && (entry->ifa_flags & IFF_UP) != 0) found.push_back({entry->ifa_name, host});
  }
  freeifaddrs(list);
  return found;
}

std::string names_of(const std::vector<InterfaceAddress>& addresses) {
  std::vector<std::string> names;
  for (const auto& [name, host] : addresses) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

Resolution look_up(const std::string& name, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (error != 0) return {{}, gai_strerror(error)};
  Resolution resolution;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const auto host = numeric(entry->ai_addr);
    if (!host.empty()) resolution.hosts.push_back(host);
  }
  freeaddrinfo(list);
  if (resolution.hosts.empty()) resolution.problem = "it has no address";
  return resolution;
}

}  // namespace

// A name service that is away keeps its callers waiting for as long as it likes: a thread asks, and is left behind.
Resolution resolve_host(const std::string& name, Deadline deadline) {
  auto resolution = look_up(name, AI_NUMERICHOST);
  if (resolution.problem.empty()) return resolution;
  std::promise<Resolution> promise;
  auto answer = promise.get_future();
  std::thread([name, promise = std::move(promise)]() mutable { promise.set_value(look_up(name, 0)); }).detach();
  if (answer.wait_until(deadline) == std::future_status::ready) return answer.get();
  return {{}, "the name service does not answer"};
}

bool is_own_address(const std::string& host) {
  try {
    const Socket socket = listen_on({host, 0}, 1);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool is_loopback(const std::string& host) {
  in_addr address = {};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
  return host == "::1";
}

void check_interfaces(const std::vector<std::string>& names) {
  for (const auto& name : names) address_of_interface(name);
}

std::string address_of_interface(const std::string& name) {
  const auto addresses = interface_addresses();
  const auto found =
      std::find_if(addresses.begin(), addresses.end(), [&](const auto& address) { return address.name == name; });
  if (found != addresses.end()) return found->host;
  const char* problem = if_nametoindex(name.c_str()) == 0 ? "no such interface" : "it is down or has no address";
  throw std::invalid_argument(fmt::format("--interface {}: {}; wanted one of {}", name, problem, names_of(addresses)));
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// Debian resolves the own name to 127.0.1.1, which no other machine can reach.
std::string address_of_host_name() {
  const auto name = host_name();
  const auto resolution = resolve_host(name, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  const char* problem = "does not resolve to an address of this machine";
  for (const auto& host : resolution.hosts) {
    if (!is_own_address(host)) continue;
    if (!is_loopback(host)) return host;
    problem = "resolves to loopback";
  }
  throw std::invalid_argument(
      fmt::format("--interface: host name {} {}; name the interface that reaches the other machines, one of {}", name,
                  problem, names_of(interface_addresses())));
}

}  // namespace prunex::comm
