// How newcomers find a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/meet/proof.h"
#include "prunex/comm/meet/socket.h"

namespace prunex::comm {

/// Where a run is joined.
struct RunDoors {
  std::string token;  ///< without which its doors do not answer
  uint16_t port = 0;  ///< which its entrances try to have; 0: none in particular
  std::vector<Endpoint> doors;

  /// A line each.
  std::string text() const;
  /// Throws std::runtime_error for what is none.
  static RunDoors from_text(const std::string& text);
};

/// Nobody answers at any door of a run, or at its entrance.
struct NobodyThere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr const char* kNobodyAtTheDoors = "[comm] nobody answers at the doors of the run";

/// Calls at all doors; the first that answers is the run's first from now on. The address by which this machine reaches
/// it. Throws NobodyThere.
std::string approach(RunDoors& run, std::chrono::milliseconds patience);

/// The interface by which this machine reaches the run; empty if that is loopback, or not to be known. Throws
/// NobodyThere.
std::string interface_towards(RunDoors run, std::chrono::milliseconds patience);

/// What a newcomer that knows the secret, and nothing else, needs to join a run.
struct Invitation {
  RunDoors run;
  std::string config;  ///< how the run was started

  std::string text() const;
  /// Throws std::runtime_error for what is none.
  static Invitation from_text(const std::string& text);
};

/// What both ends of a connection to an entrance know: of the secret alone. What is said there is encrypted, whether
/// the run is or not.
LinkKey entrance_key(const Privacy& privacy);

/// As people write it: HOST:PORT, or [HOST]:PORT if there are colons in the host, which may be a name. Nothing for what
/// is none.
std::optional<Endpoint> endpoint_in(const std::string& text);

/// Asks at an entrance, of which the host may be a name. Throws NobodyThere, std::runtime_error that says why there is
/// no answer, within a few times `patience`.
Invitation ask_for_invitation(const Endpoint& entrance, const Privacy& privacy, std::chrono::milliseconds patience);

}  // namespace prunex::comm
