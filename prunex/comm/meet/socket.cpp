#include "prunex/comm/meet/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace prunex::comm {

constexpr std::chrono::seconds kKeepAlive{60};

std::string said_by(const std::exception& error) {
  constexpr std::string_view kRoom = "[comm] ";
  const std::string_view text = error.what();
  return std::string(text.starts_with(kRoom) ? text.substr(kRoom.size()) : text);
}

namespace {

[[noreturn]] void fail_socket(const std::string& what, int error) {
  const char* cure = error == EMFILE ? ": raise ulimit -n" : "";
  const auto text = fmt::format("[comm] {}: {}{}", what, std::generic_category().message(error), cure);
  if (error == ECONNREFUSED) throw ConnectionRefused(text);
  throw std::runtime_error(text);
}

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error(fmt::format("[comm] address {}: {}", endpoint.host, gai_strerror(error)));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

Socket make_socket(const SocketAddress& address) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) fail_socket("socket", errno);
  return socket;
}

/// 0, or why not; EINPROGRESS: it is under way.
int begin_to_connect(const Socket& socket, const SocketAddress& address) {
  return connect(socket.fd(), address.get(), address.length) == 0 ? 0 : errno;
}

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

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

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

}  // namespace

std::string Endpoint::text() const {
  return fmt::format("{} {}", host, port);
}

bool Endpoint::read(std::istream& text) {
  return static_cast<bool>(text >> host >> port);
}

Socket opened(int descriptor) {
  if (descriptor < 0)
    throw std::runtime_error(fmt::format("[comm] cannot open a descriptor: {}", std::strerror(errno)));
  return Socket(descriptor);
}

int milliseconds_until(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

Deadline::duration lateness(Deadline until) {
  return std::max(std::chrono::steady_clock::now() - until, Deadline::duration::zero());
}

bool wait_for(int descriptor, short events, Deadline deadline) {
  pollfd waited = {descriptor, events, 0};
  int ready = 0;
  do {
    ready = poll(&waited, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool is_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string name_of(const std::string& host, uint16_t port) {
  const bool in_brackets = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", in_brackets ? "[" : "", host, in_brackets ? "]" : "", port);
}

namespace {

/// Nothing, if the port is taken and there is another to try.
std::optional<Socket> try_to_listen(const Endpoint& endpoint, int backlog, bool has_others) {
  const auto address = resolve(endpoint);
  Socket socket = make_socket(address);
  const int on = 1;  // what is still closing there does not keep the port; a free one is to be nobody's
  if (endpoint.port != 0) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = bind(socket.fd(), address.get(), address.length) == 0;
  if (bound) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bound && listen(socket.fd(), backlog) == 0) return socket;
  if (has_others && errno == EADDRINUSE) return {};
  fail_socket(fmt::format("listen on {}", name_of(endpoint)), errno);
}

}  // namespace

Socket listen_on(const Endpoint& endpoint, int backlog, const PortRange& ports) {
  if (endpoint.port != 0 || ports.any()) return *try_to_listen(endpoint, backlog, false);
  for (int port = ports.first; port <= ports.last; ++port) {
    if (std::find(ports.except.begin(), ports.except.end(), port) != ports.except.end()) continue;
    if (auto socket = try_to_listen({endpoint.host, static_cast<uint16_t>(port)}, backlog, true))
      return std::move(*socket);
  }
  throw std::runtime_error(
      fmt::format("[comm] `ports`: none of {} to {} is free on {}: wanted one per rank of this machine and one more, "
                  "with `elastic` three per rank, one more, and one per node",
                  ports.first, ports.last, endpoint.host));
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) fail_socket("getsockname", errno);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string address_of(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) fail_socket("getsockname", errno);
  return numeric(reinterpret_cast<const sockaddr*>(&storage));
}

Socket accept_from(const Socket& listener) {
  const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && !is_later(errno) && errno != ECONNABORTED) fail_socket("accept", errno);
  return Socket(fd);
}

std::string address_of_peer(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  return numeric(reinterpret_cast<const sockaddr*>(&storage));
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline) {
  const auto address = resolve(endpoint);
  Socket socket = make_socket(address);
  int error = begin_to_connect(socket, address);
  if (error == EINPROGRESS) {
    error = wait_for(socket.fd(), POLLOUT, deadline) ? error_of(socket) : ETIMEDOUT;
  }
  if (error != 0) fail_socket(fmt::format("connect to {}", name_of(endpoint)), error);
  return socket;
}

std::optional<std::pair<size_t, Socket>> connect_to_first(const std::vector<Endpoint>& endpoints, Deadline deadline) {
  std::vector<std::pair<size_t, Socket>> called;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    try {
      const auto address = resolve(endpoints[i]);
      Socket socket = make_socket(address);
      const int error = begin_to_connect(socket, address);
      if (error == 0) return std::pair(i, std::move(socket));
      if (error == EINPROGRESS) called.emplace_back(i, std::move(socket));
    } catch (const std::runtime_error&) {  // it is no address, or no descriptor is left
    }
  }
  while (!called.empty() && std::chrono::steady_clock::now() < deadline) {
    std::vector<pollfd> descriptors;
    for (const auto& [i, socket] : called) descriptors.push_back({socket.fd(), POLLOUT, 0});
    poll(descriptors.data(), descriptors.size(), milliseconds_until(deadline));
    for (size_t i = called.size(); i-- > 0;) {
      if (descriptors[i].revents == 0) continue;
      if (error_of(called[i].second) == 0) return std::move(called[i]);
      called.erase(called.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return std::nullopt;
}

void send_at_once(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void keep_alive(int socket) {
  const int on = 1;
  const auto pause = static_cast<int>(kKeepAlive.count());
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof(pause));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof(pause));
}

void ignore_broken_pipes() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

void prefer_latency(int socket, std::chrono::milliseconds give_up) {
  const int low_delay = IPTOS_LOWDELAY;
  const int interactive = 6;  // TC_PRIO_INTERACTIVE
  const auto unacknowledged = static_cast<unsigned>(give_up.count());
  send_at_once(socket);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
  setsockopt(socket, IPPROTO_IP, IP_TOS, &low_delay, sizeof(low_delay));
  setsockopt(socket, SOL_SOCKET, SO_PRIORITY, &interactive, sizeof(interactive));
}

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

void check_interfaces(const std::vector<std::string>& names, const char* option) {
  for (const auto& name : names) address_of_interface(name, option);
}

std::string interface_with(const std::string& host) {
  for (const auto& interface : interface_addresses()) {
    if (interface.host == host) return interface.name;
  }
  return "";
}

std::string address_of_interface(const std::string& name, const char* option) {
  const auto addresses = interface_addresses();
  const auto found =
      std::find_if(addresses.begin(), addresses.end(), [&](const auto& address) { return address.name == name; });
  if (found != addresses.end()) return found->host;
  const char* problem = if_nametoindex(name.c_str()) == 0 ? "no such interface" : "it is down or has no address";
  throw std::invalid_argument(
      fmt::format("{}: got {}, {}; wanted one of {}", option, name, problem, names_of(addresses)));
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
      fmt::format("`interface`: host name {} {}; name the interface that reaches the other machines, one of {}", name,
                  problem, names_of(interface_addresses())));
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + " " + boot;
}

std::string network_identity() {
  std::error_code ignored;
  return machine_identity() + " " + std::filesystem::read_symlink("/proc/thread-self/ns/net", ignored).string();
}

}  // namespace prunex::comm
