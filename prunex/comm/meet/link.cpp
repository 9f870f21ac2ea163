#include "prunex/comm/meet/link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace prunex::comm {
namespace {

constexpr const char* kNoTls = "it has proved the secret, but does not begin to encrypt";

}  // namespace

Link::Link(Socket socket, Side side, const LinkKey& key)
    : socket_(std::move(socket)), side_(side), encrypts_(key.encrypts), proof_(std::make_unique<Proof>(side, key)) {}

short Link::events() const {
  if (shakes_hands_) return tls_->events();
  return proof_ && !unsent_.empty() ? POLLOUT : POLLIN;
}

bool Link::prove() {
  if (!refused_.empty()) throw LinkRefused(refused_);
  try {
    while (proof_ && go_on()) {
    }
    if (shakes_hands_) shakes_hands_ = !tls_->shake_hands();
  } catch (const LinkRefused& error) {  // it is not to try again
    refused_ = error.what();
    throw;
  }
  return proven();
}

// One step; false if it has to wait. No byte more than the proof wants is taken from the kernel.
bool Link::go_on() {
  unsent_ += proof_->take_unsent();
  if (!unsent_.empty()) {
    const ssize_t sent = ::send(fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !is_later(errno)) throw LinkRefused(proof_->why_ended());
    if (sent > 0) unsent_.erase(0, static_cast<size_t>(sent));
    return sent > 0 || errno == EINTR;
  }
  if (proof_->wants() == 0) {
    if (encrypts_) tls_ = std::make_unique<Tls>(fd(), side_, proof_->session_key());
    shakes_hands_ = encrypts_;
    proof_.reset();
    return true;
  }
  std::array<char, kKeyBytes> buffer;
  const size_t missing = std::min(buffer.size(), proof_->wants() - received_.size());
  const ssize_t count = recv(fd(), buffer.data(), missing, MSG_DONTWAIT);
  if (count == 0 || (count < 0 && !is_later(errno))) throw LinkRefused(proof_->why_ended());
  if (count < 0) return errno == EINTR;
  received_.append(buffer.data(), static_cast<size_t>(count));
  if (received_.size() == proof_->wants()) proof_->take(std::exchange(received_, ""));
  return true;
}

void Link::prove_until(Deadline deadline) {
  while (!prove()) {
    if (!wait(events(), deadline)) throw LinkRefused(proof_ ? proof_->why_ended() : kNoTls);
  }
}

// Whether bytes may pass; else errno says why not.
bool Link::ready() {
  try {
    if (prove()) return true;
    errno = EAGAIN;
  } catch (const LinkRefused&) {
    errno = EACCES;
  }
  return false;
}

ssize_t Link::send(const void* data, size_t bytes, bool more) {
  if (!ready()) return -1;
  if (tls_) return tls_->send(data, bytes);
  return ::send(fd(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
}

ssize_t Link::receive(void* data, size_t bytes) {
  if (!ready()) return -1;
  return tls_ ? tls_->receive(data, bytes) : recv(fd(), data, bytes, MSG_DONTWAIT);
}

bool Link::send_all(const void* data, size_t bytes, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(next, bytes);
    if (sent < 0 && (!is_later(errno) || !wait(proven() ? POLLOUT : events(), deadline))) return false;
    if (sent < 0) continue;
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool Link::receive_all(void* data, size_t bytes, Deadline deadline) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = receive(next, bytes);
    if (received == 0) return false;
    if (received < 0 && (!is_later(errno) || !wait(events(), deadline))) return false;
    if (received < 0) continue;
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

bool Link::wait(short events, Deadline deadline) const {
  return wait_for(fd(), events, deadline);
}

void Link::end_sending() {
  shutdown(fd(), SHUT_WR);
}

}  // namespace prunex::comm
