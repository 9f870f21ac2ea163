#include "prunex/comm/watch/peer_link.h"

#include <poll.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace prunex::comm {
namespace {

// On the wire: the kind, two bytes of length, low one first, the text.
constexpr size_t kHeader = 3;
constexpr auto kPart = static_cast<MessageKind>(0xff);   // of the text of the message that follows
constexpr size_t kMostReceived = 4 * kMostMessageBytes;  // before messages are taken out
constexpr size_t kMostInParts = size_t{16} << 20;

}  // namespace

short PeerLink::events() const {
  if (!proven()) return link_.events();
  return blocked() ? POLLIN | POLLOUT : POLLIN;
}

void PeerLink::put(MessageKind kind, std::string_view text) {
  unsent_ += static_cast<char>(kind);
  unsent_ += static_cast<char>(text.size() & 0xff);
  unsent_ += static_cast<char>(text.size() >> 8);
  unsent_.append(text);
}

void PeerLink::send(const PeerMessage& message) {
  std::string_view text = message.text;
  for (; text.size() > kMostMessageBytes; text.remove_prefix(kMostMessageBytes)) {
    put(kPart, text.substr(0, kMostMessageBytes));
  }
  put(message.kind, text);
  flush();
}

void PeerLink::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = link_.send(unsent_.data(), unsent_.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

std::string PeerLink::receive() {
  char buffer[4096];
  has_more_ = false;
  if (parts_.size() > kMostInParts) return "it says too much at once";
  while (received_.size() < kMostReceived) {
    const ssize_t count = link_.receive(buffer, sizeof(buffer));
    if (count == 0) return "its process ended";
    if (count > 0) {
      received_.append(buffer, static_cast<size_t>(count));
      received_bytes_ += static_cast<uint64_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (proven()) flush();
      return "";
    } else if (errno != EINTR) {
      return errno == ECONNRESET || errno == EPIPE ? "its process ended" : std::generic_category().message(errno);
    }
  }
  has_more_ = true;
  return "";
}

std::optional<PeerMessage> PeerLink::next() {
  while (received_.size() >= kHeader) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(received_[i]); };
    const size_t length = byte(1) | static_cast<size_t>(byte(2)) << 8;
    if (received_.size() < kHeader + length) return std::nullopt;
    const auto kind = static_cast<MessageKind>(byte(0));
    parts_.append(received_, kHeader, length);
    received_.erase(0, kHeader + length);
    if (kind != kPart) return PeerMessage{kind, std::exchange(parts_, {})};
  }
  return std::nullopt;
}

void PeerLink::end_sending() {
  link_.end_sending();
}

}  // namespace prunex::comm
