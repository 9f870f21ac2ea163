#include "prunex/comm/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace prunex::comm {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  const char* cure = error == EMFILE ? ": raise ulimit -n" : "";
  throw std::runtime_error(fmt::format("[comm] {}: {}{}", what, std::generic_category().message(error), cure));
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
  if (socket.fd() < 0) fail("socket", errno);
  return socket;
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
  pollfd descriptor = {socket.fd(), events, 0};
  int ready = 0;
  do {
    ready = poll(&descriptor, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool try_again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

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

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Socket listen_on(const Endpoint& endpoint, int backlog) {
  const auto name = fmt::format("listen on {}:{}", endpoint.host, endpoint.port);
  const auto address = resolve(endpoint);
  Socket socket = make_socket(address);
  const int on = 1;  // connections of an earlier run that are still closing do not keep the port
  if (endpoint.port != 0) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.fd(), address.get(), address.length) != 0) fail(name, errno);
  if (listen(socket.fd(), backlog) != 0) fail(name, errno);
  return socket;
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) fail("getsockname", errno);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Socket accept_from(const Socket& listener) {
  const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && !try_again(errno) && errno != ECONNABORTED) fail("accept", errno);
  return Socket(fd);
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline) {
  const auto address = resolve(endpoint);
  Socket socket = make_socket(address);
  if (connect(socket.fd(), address.get(), address.length) == 0) return socket;
  int error = errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof(error);
    error = ETIMEDOUT;
    if (wait_for(socket, POLLOUT, deadline)) getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) fail(fmt::format("connect to {}:{}", endpoint.host, endpoint.port), error);
  return socket;
}

bool send_all(const Socket& socket, const void* data, size_t bytes, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket.fd(), next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && (!try_again(errno) || !wait_for(socket, POLLOUT, deadline))) return false;
    if (sent < 0) continue;
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(const Socket& socket, void* data, size_t bytes, Deadline deadline) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(socket.fd(), next, bytes, 0);
    if (received == 0) return false;
    if (received < 0 && (!try_again(errno) || !wait_for(socket, POLLIN, deadline))) return false;
    if (received < 0) continue;
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

void prefer_latency(const Socket& socket, std::chrono::milliseconds give_up) {
  const int on = 1;
  const int low_delay = IPTOS_LOWDELAY;
  const int interactive = 6;  // TC_PRIO_INTERACTIVE
  const auto unacknowledged = static_cast<unsigned>(give_up.count());
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
  setsockopt(socket.fd(), IPPROTO_IP, IP_TOS, &low_delay, sizeof(low_delay));
  setsockopt(socket.fd(), SOL_SOCKET, SO_PRIORITY, &interactive, sizeof(interactive));
}

}  // namespace prunex::comm
