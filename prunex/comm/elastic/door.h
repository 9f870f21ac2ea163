// Where a rank can be reached as long as its process lives, whatever becomes of its groups.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/comm/elastic/agreement.h"
#include "prunex/comm/watch/peer_link.h"

namespace prunex::comm {

/// What a rank learns at another one's door.
enum class Presence { kThere, kEnded, kSilent };

/// A rank that asks to be let into the run.
struct Newcomer {
  std::string key;  ///< one word that the ranks of its node have in common
  int local_rank = 0;
  int ranks = 1;  ///< of its node
  Endpoint door;

  std::string text() const;
  /// Throws std::runtime_error for what is none.
  static Newcomer from_text(const std::string& text);
};

/// A node that asks to be let in: all of its ranks, in their order.
using NewNode = std::vector<Newcomer>;

/// A thread that listens on a port of its own. Callers who know the key and bring a report are kept, and hear every
/// now and then that this process lives; so do those who ask just that, and newcomers, unless the run is led by another
/// rank: then they are sent to its door. Who is not in the newest roster is told so and sent away. Others are turned
/// away; those who say nothing make room for others.
class Door {
 public:
  /// `pause`: between two signs of life.
  Door(const std::string& address, const LinkKey& key, std::chrono::milliseconds pause);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }

  /// Of the callers that are kept, the newest report of each.
  std::vector<Report> reports() const;
  /// Those in the roster hear `message`, the others that they are out of it. None of them is lost if this rank ends.
  void tell(const Roster& roster, const std::string& message);
  /// Ends the conversations with those who are kept: they have to call again.
  void dismiss();
  /// The newest roster in which all ranks have met, and who lets newcomers in.
  void set_formed(const Roster& roster, const Endpoint& leader);

  /// Those who wait to be let in, in the order in which they came.
  std::vector<NewNode> newcomers() const;
  /// Whether the rank with this door does.
  bool is_waiting(const Endpoint& newcomer) const;
  /// Lets a node in, with this message, or sends it away, with none.
  void answer(const NewNode& node, const std::string& message);
  /// What everybody may fetch from now on; null: nothing. Who has begun to gets all of it.
  void offer(std::shared_ptr<const std::string> state);

 private:
  class Loop;
  Endpoint endpoint_;
  std::unique_ptr<Loop> loop_;
};

/// A conversation at another rank's door.
class Call {
 public:
  struct Answer {
    Presence presence = Presence::kThere;
    std::string message = {};                ///< what Door::tell() said; empty if it said nothing
    bool is_out = false;                     ///< the others went on in a roster without this rank, or do not let it in
    std::optional<Endpoint> elsewhere = {};  ///< who lets newcomers in
  };

  /// Asks for a sign of life alone, looks for the others, or wants to be let in. Waits for the connection up to
  /// `patience`, which is also the silence that ends the conversation.
  Call(const Endpoint& door, const LinkKey& key, std::chrono::milliseconds patience);
  Call(const Endpoint& door, const LinkKey& key, const Report& report, std::chrono::milliseconds patience);
  Call(const Endpoint& door, const LinkKey& key, const Newcomer& newcomer, std::chrono::milliseconds patience);

  /// Goes on with the conversation: what has been heard, having waited up to `wait` for something; nothing if it was
  /// nothing, or a sign of life.
  std::optional<Answer> hear(std::chrono::milliseconds wait);
  /// Whether a sign of life has come.
  bool lives() const { return lives_; }

 private:
  using Clock = std::chrono::steady_clock;
  Call(const Endpoint& door, const LinkKey& key, const std::string& words, std::chrono::milliseconds patience);

  std::optional<PeerLink> link_;
  Presence presence_ = Presence::kThere;
  const std::chrono::milliseconds patience_;
  Clock::time_point heard_ = Clock::now();
  bool lives_ = false;
};

/// What the rank behind the door offers. Throws std::runtime_error if it offers nothing, or has been silent for
/// `patience`.
std::string fetch_from(const Endpoint& door, const LinkKey& key, std::chrono::milliseconds patience);

/// Whether the process behind the door lives.
Presence presence_at(const Endpoint& door, const LinkKey& key, std::chrono::milliseconds patience);

}  // namespace prunex::comm
