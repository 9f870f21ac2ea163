// One rank's watch over the run: who is alive, the end of all waits when a rank is lost, reports when the run hangs.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "prunex/comm/backend.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/watch/journal.h"
#include "prunex/comm/watch/signals.h"

namespace prunex::comm {

struct HeartbeatOptions {
  /// Silence that means death. Pings come every 300 ms, or five times in it if that is more often.
  std::chrono::milliseconds timeout{5000};
  /// Where the others reach this rank: a numeric address of this machine.
  std::string address = "127.0.0.1";
  /// How long the ranks may take to come together.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);
  Privacy privacy = {};
  PortRange ports = {};
};

/// Begins the reason why a rank is lost that said nothing.
inline constexpr const char* kSilentFor = "silent for";

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

struct WatchOptions {
  /// After how long an operation fails for want of an answer.
  std::chrono::milliseconds operation_timeout = std::chrono::minutes(10);
  /// Whether a rank that is lost or does not answer makes all ranks write reports.
  bool reports = false;
  /// A signal that makes all ranks write reports, such as SIGUSR1; it must be blocked (signals.h). 0: none.
  int report_signal = 0;
};

/// A report is the rank's journal, and from one rank a line that names the rank that lags. Journals go to standard
/// error, or to hang-rank-N.txt once a folder is known.
class Watch {
 public:
  Watch(const Layout& layout, const WatchOptions& options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// What the rank's operations are written to; they share it.
  const std::shared_ptr<Journal>& journal() const { return journal_; }
  /// Goes on with "lost rank 3 (node 1): …" when a rank is lost.
  const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }

  /// The rank that is lost because it said nothing; none if none is.
  std::optional<int> silent_rank() const;
  /// Whether another rank has ended in order. It may have done all that this one has begun: then no rank is lost yet.
  bool has_leavers() const;

  /// Starts the heartbeat: until then, and without it, the watch knows nothing of other ranks. All ranks must call.
  void start(Store& store, const HeartbeatOptions& options);

  void write_reports_to(const std::string& folder);
  /// Makes all ranks write a report.
  void request_report();

 private:
  struct Peer {
    Progress progress;
    Journal::Clock::time_point since;  // when that was news
    bool left = false;
  };

  HeartbeatEvents events();
  void hear(int rank, const std::string& status, bool left);
  void lose(int rank, const std::string& reason);
  void look_for_leavers();
  bool is_news();
  void note_failure(const Journal::Entry& entry);

  std::string folder() const;
  void write_aside(bool may_name);
  void write_report(bool may_name) const;
  void write_journal() const;
  void print_laggard() const;
  std::string describe_lag() const;
  double seconds_waited(int rank) const;
  std::string name_of(int rank) const;

  const Layout layout_;
  const WatchOptions options_;
  const std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
  const std::shared_ptr<AbortSwitch> abort_switch_ = std::make_shared<AbortSwitch>();

  mutable std::mutex mutex_;
  std::map<int, Peer> peers_;
  std::optional<int> silent_rank_;
  std::string folder_;
  std::optional<std::chrono::steady_clock::time_point> reported_at_;

  mutable std::mutex writes_;  // of the one who writes the report
  std::future<void> writing_;  // of the one who does so aside
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<SignalThread> signals_;
};

}  // namespace prunex::comm
