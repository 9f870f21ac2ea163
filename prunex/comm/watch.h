// One rank's watch over the run: it ends all waits when a rank is lost, and writes reports when the run hangs.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "prunex/comm/abort_switch.h"
#include "prunex/comm/heartbeat.h"
#include "prunex/comm/journal.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/signal_thread.h"

namespace prunex::comm {

struct WatchOptions {
  /// After how long an operation fails for want of an answer.
  std::chrono::milliseconds operation_timeout = std::chrono::minutes(10);
  /// Whether a rank that is lost or does not answer makes all ranks write reports.
  bool reports = false;
  /// A signal that makes all ranks write reports, such as SIGUSR1; it must be blocked (signal_thread.h). 0: none.
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
  void follow(const std::string& note);
  void note_failure(const Journal::Entry& entry);

  bool has_folder() const;
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
  std::string folder_;
  std::optional<std::chrono::steady_clock::time_point> reported_at_;

  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<SignalThread> signals_;
};

}  // namespace prunex::comm
