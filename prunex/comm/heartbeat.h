// Who of the run is still alive.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "prunex/comm/store.h"
#include "prunex/comm/traffic.h"

namespace prunex::comm {

struct HeartbeatOptions {
  /// Silence that means death. Pings come every 300 ms, or five times in it if that is more often.
  std::chrono::milliseconds timeout{1500};
  /// Where the others reach this rank: a numeric address of this machine.
  std::string address = "127.0.0.1";
  /// How long the ranks may take to come together.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);
};

/// What a heartbeat asks and tells, all from its own thread; none of it may throw. Any may be empty.
struct HeartbeatEvents {
  /// What the pings and the goodbye say about this rank: at most 64 KiB.
  std::function<std::string()> status;
  /// A peer's status was new.
  std::function<void(int rank, const std::string& status)> heard;
  /// A peer ended in order, with this last status.
  std::function<void(int rank, const std::string& status)> left;
  /// A peer is lost. At most one is ever reported, the same one on all ranks that can still speak to each other.
  std::function<void(int rank, const std::string& reason)> died;
  /// A peer's tell_all().
  std::function<void(int rank, const std::string& note)> told;
  /// After every round: at least once per ping.
  std::function<void()> round;
};

/// A thread of its own that exchanges pings with the other ranks over TCP connections of its own. A peer is dead when
/// its connection ends without a goodbye or breaks, or when it is silent for longer than the timeout, not counting the
/// time by which this thread itself ran late. Whoever finds one dead tells the others. Connections end where all others
/// see it; for silence each rank watches all others in runs of up to 16 ranks, and about 2 log2 n of n in larger ones.
class Heartbeat {
 public:
  /// All ranks must call. Throws std::runtime_error that names the rank that did not come.
  Heartbeat(Place place, Store& store, const HeartbeatOptions& options, HeartbeatEvents events);
  /// Says goodbye: the others do not take the end of this rank for its death.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sends a note to every rank that is left, this one not included. From any thread.
  void tell_all(const std::string& note);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace prunex::comm
