// What is said at the door of a rank, and how others call there.
#pragma once

#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "prunex/comm/elastic/agreement.h"
#include "prunex/comm/watch/peer_link.h"

namespace prunex::comm {

/// What is said at a door; behind those with a space there is more.
namespace words {
inline constexpr const char* kAsk = "ask";               ///< for a sign of life
inline constexpr const char* kIsIn = "is in ";           ///< whether the others go on with the caller: a Report
inline constexpr const char* kSeek = "seek ";            ///< the others: a Report
inline constexpr const char* kJoin = "join ";            ///< a Newcomer
inline constexpr const char* kFetch = "fetch";           ///< what is offered
inline constexpr const char* kIn = "in";                 ///< they have not gone on without it
inline constexpr const char* kOut = "out";               ///< the others go on without the caller
inline constexpr const char* kSaid = "said ";            ///< what Door::tell() or answer() was given
inline constexpr const char* kElsewhere = "elsewhere ";  ///< the Endpoint of who lets newcomers in
inline constexpr const char* kSize = "size ";            ///< bytes of what comes as data
}  // namespace words

/// What follows the word, if the text begins with it.
std::optional<std::string> after(const char* word, const std::string& text);

/// What a rank learns at another one's door.
enum class Presence {
  kThere,
  kEnded,   ///< nobody listens there
  kBroken,  ///< the connection ended: that of a process which is about to, or one that made room for others
  kSilent,
  kWentOn
};

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

/// A conversation at another rank's door.
class Call {
 public:
  struct Answer {
    Presence presence = Presence::kThere;
    std::string message = {};                ///< what Door::tell() said; empty if it said nothing
    bool is_out = false;                     ///< the others went on in a roster without this rank, or do not let it in
    std::optional<Endpoint> elsewhere = {};  ///< who lets newcomers in
  };

  /// Asks for a sign of life alone, or says so many words, looks for the others, or wants to be let in. Waits for the
  /// connection up to `patience`, which is also the silence that ends the conversation.
  Call(const Endpoint& door, const LinkKey& key, std::chrono::milliseconds patience);
  Call(const Endpoint& door, const LinkKey& key, const std::string& words, std::chrono::milliseconds patience);
  Call(const Endpoint& door, const LinkKey& key, const Report& report, std::chrono::milliseconds patience);
  Call(const Endpoint& door, const LinkKey& key, const Newcomer& newcomer, std::chrono::milliseconds patience);

  /// Goes on with the conversation: what has been heard, having waited up to `wait` for something; nothing if it was
  /// nothing, or a sign of life.
  std::optional<Answer> hear(std::chrono::milliseconds wait);
  /// Whether a sign of life has come.
  bool lives() const { return lives_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<PeerLink> link_;
  Presence presence_ = Presence::kThere;
  const std::chrono::milliseconds patience_;
  Clock::time_point heard_ = Clock::now();
  bool lives_ = false;
};

/// What the rank behind the door offers, of so many bytes at most. Throws ConnectionRefused; std::runtime_error if it
/// offers nothing, or more, if one end does not know what the other does, if it was silent for `patience`, or if that
/// took longer than `limit`.
std::string fetch_from(const Endpoint& door, const LinkKey& key, size_t most_bytes, std::chrono::milliseconds patience,
                       std::chrono::milliseconds limit);

/// Whether the process behind the door lives: asks anew where the connection ends, until it has been silent for
/// `patience`. Never kBroken.
Presence presence_at(const Endpoint& door, const LinkKey& key, std::chrono::milliseconds patience);
/// Or whether it has gone on without who says this of itself.
Presence presence_at(const Endpoint& door, const LinkKey& key, const Report& self, std::chrono::milliseconds patience);

/// Asks at many doors at once whether their processes live, and have not gone on without who says this of itself; does
/// not wait for answers.
class RollCall {
 public:
  RollCall(LinkKey key, Report self) : key_(std::move(key)), self_(std::move(self)) {}

  /// What has been heard from there since the last time; then, after a pause, asks again, for so long.
  std::optional<Presence> ask(const Endpoint& door, std::chrono::milliseconds patience);
  /// Whether that was so when it last answered: each does at its own time.
  bool is_there(const Endpoint& door) const;

 private:
  struct Asked {
    std::future<Presence> answer;
    std::optional<Presence> last;
    std::chrono::steady_clock::time_point answered_at = {};
  };

  const LinkKey key_;
  const Report self_;
  std::map<std::string, Asked> asked_;  // by the doors' text
};

}  // namespace prunex::comm
