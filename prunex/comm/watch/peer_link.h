// One connection of the heartbeat: short messages, never blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "prunex/comm/meet/link.h"

namespace prunex::comm {

enum class MessageKind : uint8_t { kPing, kGoodbye, kDeath, kNote, kData };

inline constexpr size_t kMostMessageBytes = 0xffff;  ///< on the wire: more goes ahead of it, as parts

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
  /// Whether receive() has left something behind, which poll() may not see: take messages out, then receive again.
  bool has_more() const { return has_more_; }
  /// The next message that is complete.
  std::optional<PeerMessage> next();
  /// Ever, of messages or of parts of them.
  uint64_t received_bytes() const { return received_bytes_; }

  /// No more to send; the other end reads what was sent, then the end.
  void end_sending();

 private:
  Link link_;
  std::string unsent_;
  std::string received_;
  std::string parts_;  // of the next message
  uint64_t received_bytes_ = 0;
  bool has_more_ = false;

  void put(MessageKind kind, std::string_view text);
};

}  // namespace prunex::comm
