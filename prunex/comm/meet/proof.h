// How two processes prove to each other that they know the same secret, before either believes anything.
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "prunex/comm/privacy.h"

namespace prunex::comm {

inline constexpr size_t kKeyBytes = 32;
using KeyBytes = std::array<unsigned char, kKeyBytes>;

/// What both ends of a connection must know, and whether they encrypt what follows.
struct LinkKey {
  KeyBytes bytes = {};
  bool encrypts = false;
};

/// HKDF-SHA256 (RFC 5869) of the secret, for one purpose ("store", "door", "peer") and of one token, which whoever may
/// call has learnt elsewhere. Neither can be told from the key, and keys of other purposes or tokens are others.
/// Without a secret, whoever knows the token has the key.
LinkKey link_key(const Privacy& privacy, std::string_view purpose, std::string_view token = "");

KeyBytes hmac_sha256(std::string_view key, std::string_view message);
std::string_view text_of(const KeyBytes& bytes);

/// The other end proved nothing: another program, or a process with another secret.
struct LinkRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Side { kCaller, kAnswerer };

/// One end of the proof, as messages of fixed sizes; who moves them is another matter.
///
///   answerer: greeting, nonce a
///   caller:   greeting, nonce c, HMAC(key, "caller", greeting, a, c)
///   answerer: HMAC(key, "answerer", greeting, a, c)
///
/// Nonces are 32 random bytes, so that nothing that was recorded proves anything, and the words keep an end's own proof
/// from being sent back to it. The answerer proves nothing to who has proved nothing.
class Proof {
 public:
  Proof(Side side, const LinkKey& key);

  /// What is to be sent next, if anything; it is not said twice.
  std::string take_unsent();
  /// How many bytes of the other end are read next; 0 once it has proved what it knows.
  size_t wants() const { return wants_; }
  /// Takes them. Throws LinkRefused.
  void take(std::string_view message);
  /// What only the two ends know, and no other connection has; once wants() is 0.
  KeyBytes session_key() const { return mac("session"); }
  /// Says what it means that the other end has closed the connection or said nothing, as a clause.
  std::string why_ended() const;

 private:
  void check_greeting(std::string_view message);
  void answer(std::string_view message);
  KeyBytes mac(std::string_view word) const;

  const Side side_;
  const LinkKey key_;
  std::string greeting_, nonce_;     // of this end
  std::string answerers_, callers_;  // nonces
  std::string unsent_;
  size_t wants_ = 0;
  enum class Stage { kGreeting, kNonce, kMac, kDone } stage_ = Stage::kGreeting;
};

}  // namespace prunex::comm
