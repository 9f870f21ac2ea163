// One connection of the heartbeat: short messages, never blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "prunex/comm/meet/socket.h"

namespace prunex::comm {

enum class MessageKind : uint8_t { kPing, kGoodbye, kDeath, kNote, kData };

inline constexpr size_t kMostMessageBytes = 0xffff;

/// text: at most kMostMessageBytes; the rest is not sent.
struct PeerMessage {
  MessageKind kind = MessageKind::kPing;
  std::string text;
};

class PeerLink {
 public:
  explicit PeerLink(Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  /// Whether there are bytes that the kernel did not take yet.
  bool blocked() const { return !unsent_.empty(); }

  /// Sends as much as the kernel takes, keeps the rest for flush(). What breaks is noticed by receive().
  void send(const PeerMessage& message);
  void flush();

  /// Takes in what has arrived. Empty, or why the connection is over.
  std::string receive();
  /// The next message that is complete.
  std::optional<PeerMessage> next();

  /// No more to send; the other end reads what was sent, then the end.
  void end_sending();

 private:
  Socket socket_;
  std::string unsent_;
  std::string received_;
};

}  // namespace prunex::comm
