// What somebody says and hears at a socket who proves nothing.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include "prunex/comm/meet/socket.h"

namespace prunex::tests {

/// All of the bytes, or false by the deadline or if the connection broke.
template <typename Byte, typename Move>
bool move_all(const comm::Socket& socket, Byte* next, size_t bytes, short events, comm::Deadline deadline, Move move) {
  while (bytes > 0) {
    pollfd descriptor = {socket.fd(), events, 0};
    if (poll(&descriptor, 1, comm::milliseconds_until(deadline)) <= 0) return false;
    const ssize_t moved = move(socket.fd(), next, bytes);
    if (moved <= 0) return false;
    next += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}

inline bool send_all(const comm::Socket& socket, const void* data, size_t bytes, comm::Deadline deadline) {
  return move_all(socket, static_cast<const char*>(data), bytes, POLLOUT, deadline,
                  [](int fd, const char* next, size_t left) { return send(fd, next, left, MSG_NOSIGNAL); });
}

inline bool receive_all(const comm::Socket& socket, void* data, size_t bytes, comm::Deadline deadline) {
  return move_all(socket, static_cast<char*>(data), bytes, POLLIN, deadline,
                  [](int fd, char* next, size_t left) { return recv(fd, next, left, 0); });
}

}  // namespace prunex::tests
