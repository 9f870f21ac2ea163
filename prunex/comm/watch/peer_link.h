// One connection of the heartbeat: short messages, never blocking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "prunex/comm/meet/link.h"

namespace prunex::comm {

enum class MessageKind : uint8_t { kPing, kGoodbye, kDeath, kNote };

/// text: at most 64 KiB.
struct PeerMessage {
  MessageKind kind = MessageKind::kPing;
  std::string text;
};

class PeerLink {
 public:
  explicit PeerLink(Link link) : link_(std::move(link)) {}

  int fd() const { return link_.fd(); }
  /// Whether the other end has proved that it knows the key; until then nothing is sent to it or heard of it.
  bool proven() const { return link_.proven(); }
  /// What to poll for.
  short events() const;
  /// Whether there are bytes that the kernel did not take yet.
  bool blocked() const { return !unsent_.empty(); }

  /// Sends as much as the kernel takes, keeps the rest for flush(). What breaks is noticed by receive().
  void send(const PeerMessage& message);
  void flush();

  /// Takes in what has arrived, and sends what waited for the proof. Empty, or why the connection is over.
  std::string receive();
  /// The next message that is complete.
  std::optional<PeerMessage> next();

  /// No more to send; the other end reads what was sent, then the end.
  void end_sending();

 private:
  Link link_;
  std::string unsent_;
  std::string received_;
};

}  // namespace prunex::comm
