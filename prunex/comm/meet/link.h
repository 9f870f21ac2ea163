// A connection whose two ends have proved that they know the same secret.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "prunex/comm/meet/proof.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/tls.h"

namespace prunex::comm {

/// A connection that does not block. Until the other end has proved that it knows the key, nothing that it sends is
/// handed on and nothing is sent to it; the proof goes on whenever one wants to send or receive. If the key says so,
/// all that follows is encrypted, with a key that the proof has made for this connection.
class Link {
 public:
  Link() = default;
  Link(Socket socket, Side side, const LinkKey& key);

  int fd() const { return socket_.fd(); }
  /// What poll() is to wait for beside what the owner waits for: until it is proven, one of POLLIN and POLLOUT.
  short events() const;

  /// Goes on with the proof as far as that does not block; whether it is done. Throws LinkRefused.
  bool prove();
  bool proven() const { return !proof_ && !shakes_hands_; }
  /// Waits for it. Throws LinkRefused that says why there is none by the deadline.
  void prove_until(Deadline deadline);

  /// As send and recv of the system, never waiting: -1 and errno, EAGAIN where there is nothing yet, EACCES where the
  /// other end proved nothing.
  /// `more`: what comes next belongs to it.
  ssize_t send(const void* data, size_t bytes, bool more = false);
  ssize_t receive(void* data, size_t bytes);
  /// All of the bytes, or false by the deadline or if the connection broke.
  bool send_all(const void* data, size_t bytes, Deadline deadline);
  bool receive_all(void* data, size_t bytes, Deadline deadline);

  /// No more to send; the other end reads what was sent, then the end.
  void end_sending();

 private:
  bool go_on();
  bool ready();
  bool wait(short events, Deadline deadline) const;

  Socket socket_;
  Side side_ = Side::kCaller;
  bool encrypts_ = false;
  std::unique_ptr<Proof> proof_;
  std::unique_ptr<Tls> tls_;
  bool shakes_hands_ = false;
  std::string received_, unsent_;  // of the proof
  std::string refused_;            // why there will be none
};

}  // namespace prunex::comm
