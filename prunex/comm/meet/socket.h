// TCP sockets of our own, host names, network interfaces and their numeric addresses.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/comm/ports.h"

namespace prunex::comm {

/// Owns a descriptor; closes it.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  void close();
  /// Gives the descriptor away.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// What a call of the kernel opened. Throws std::runtime_error if it opened nothing: who waits for a descriptor that is
/// none waits for ever.
Socket opened(int descriptor);

/// What an error says, for another one that says where: without this room's "[comm] ", if it has that.
std::string said_by(const std::exception& error);

/// A numeric address, IPv4 or IPv6, and a port.
struct Endpoint {
  std::string host;
  uint16_t port = 0;

  /// Two words; read() is false for what is none.
  std::string text() const;
  bool read(std::istream& text);
  bool operator==(const Endpoint&) const = default;
};

/// "host:port"; an IPv6 address stands in brackets.
std::string name_of(const std::string& host, uint16_t port);
inline std::string name_of(const Endpoint& endpoint) {
  return name_of(endpoint.host, endpoint.port);
}

using Deadline = std::chrono::steady_clock::time_point;

/// Milliseconds until then, for poll(); at least 0.
int milliseconds_until(Deadline deadline);
/// How much later than `until` it is, at least 0, for who meant to wake by then: while this process was stopped, the
/// others' silence was no evidence.
Deadline::duration lateness(Deadline until);

/// Waits as poll() does, whatever signals come; false if nothing has come of it by then.
bool wait_for(int descriptor, short events, Deadline deadline);
/// Whether this errno of a call that does not block asks to try again, now or later.
bool is_later(int error);

/// Listens on a port of the host, for 0 the first free one of `ports`, for so many connections to come before they are
/// accepted. All sockets here are closed by exec and do not block. Throws std::runtime_error, as do the others; it
/// names `ports` if none of them is free.
Socket listen_on(const Endpoint& endpoint, int backlog, const PortRange& ports = {});
uint16_t port_of(const Socket& socket);
/// The numeric address of this end.
std::string address_of(const Socket& socket);
/// Of who has come already; no socket if nobody has.
Socket accept_from(const Socket& listener);
/// The numeric address of the other end; empty if it has gone.
std::string address_of_peer(const Socket& socket);
/// The machine answers that nobody listens: whoever did has ended.
struct ConnectionRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
Socket connect_to(const Endpoint& endpoint, Deadline deadline);
/// Calls all at once. The first that answers, by its place in the list; nothing if none has by then.
std::optional<std::pair<size_t, Socket>> connect_to_first(const std::vector<Endpoint>& endpoints, Deadline deadline);

/// What is sent is not held back until more comes.
void send_at_once(int socket);
/// Where nothing is said for long, the kernel gives signs of life, lest what is between forgets the connection.
void keep_alive(int socket);

/// From now on writing where nobody reads is an error of the write and not the end of the process, unless it has a
/// handler of its own for that.
void ignore_broken_pipes();

/// For short messages that must not wait behind long ones; the kernel gives a connection up when the other end has
/// acknowledged nothing for so long.
void prefer_latency(int socket, std::chrono::milliseconds give_up);

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

/// Throws std::invalid_argument for the first of these that is no interface with an address; `option` named it.
void check_interfaces(const std::vector<std::string>& names, const char* option = "`interface`");
/// The first address of an interface. Throws as check_interfaces.
std::string address_of_interface(const std::string& name, const char* option = "`interface`");
/// The interface that has this address; empty if none has.
std::string interface_with(const std::string& host);

/// Names this machine, or the container of it that has a host name of its own.
std::string machine_identity();
/// Names this machine's network stack: ranks with equal names reach each other over loopback.
std::string network_identity();
/// The address of this machine's host name. Throws std::invalid_argument that asks for `interface` if it is loopback or
/// none of this machine's.
std::string address_of_host_name();

}  // namespace prunex::comm
