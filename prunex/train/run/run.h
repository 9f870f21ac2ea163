// A run as files and lines: its directory, checkpoints, metrics, trace and progress; and how it ends on request.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/io/files.h"
#include "prunex/stopwatch.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/options.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/run/metrics_file.h"
#include "prunex/train/run/progress.h"

namespace prunex::train {

/// Asks train() to end after the next exchange, with a checkpoint. One rank that is asked ends all; but of an elastic
/// run, SIGTERM to a part of the ranks makes these leave, and the others go on.
class StopRequest {
 public:
  /// From any thread. False if the run has nothing to keep: before its first step, and without checkpoints. Then
  /// whoever asks should end the process.
  bool ask(int signal) {
    if (!heard_) return false;
    if (signal_ == 0) asked_at_ = Stopwatch::now();
    signal_ = signal;
    return true;
  }
  /// What was asked with; 0 if nobody asked.
  int signal() const { return signal_; }
  /// Since the first time.
  double seconds() const { return Stopwatch::now() - asked_at_; }

  /// For train().
  void hear() { heard_ = true; }

 private:
  std::atomic<bool> heard_ = false;
  std::atomic<double> asked_at_ = 0;
  std::atomic<int> signal_ = 0;
};

/// All calls but wishes() and way_on() are collective.
class Safekeeping {
 public:
  /// `stop` may be null: then nobody asks.
  Safekeeping(const TrainOptions& options, const std::string& run_directory, const std::string& config,
              comm::Hierarchy& ranks, StopRequest* stop);

  /// What a resumed run goes on from; nothing if it starts. See Checkpoints::load.
  std::optional<Checkpoint> load();
  /// See Checkpoints::is_taken.
  bool is_taken() const { return checkpoints_.is_taken(); }
  /// Of a run that goes on without this rank, which was asked to stop and is not the first to hear of it: throws
  /// Interrupted.
  void leave(int64_t exchange) const;
  /// From here on there is something to keep.
  void begin();
  /// What this rank asks for after an exchange. Times are rank 0's.
  Wishes wishes(int64_t exchange, bool last) const;
  /// With what all ranks asked for: writes a checkpoint, throws Interrupted. A checkpoint that cannot be written is
  /// said, and the run goes on with the ones before; so if there is a `problem` already.
  void heed(const Wishes& all, const Checkpoint& checkpoint, const std::string& problem);
  /// The results are there: removes the checkpoints that nobody asked for.
  void finish();

  /// Behind an error: "; prunex train `resume` RUN_DIR goes on after exchange 12", or nothing.
  std::string way_on() const;

 private:
  void save(const Checkpoint& checkpoint, const std::string& problem);

  const int64_t every_;
  const double period_;
  const int64_t resume_exchange_;
  const bool resumes_;
  const std::string directory_;
  comm::Hierarchy& ranks_;
  StopRequest* const stop_;
  Checkpoints checkpoints_;
  int64_t saved_ = 0;     // the newest exchange with a checkpoint; 0: none
  double saved_at_ = 0;   // or tried
  double save_took_ = 0;  // seconds
};

/// What train() ends with on all ranks after such a request; what() says how to go on.
struct Interrupted : std::runtime_error {
  Interrupted(const std::string& what, int by, bool alone = false)
      : std::runtime_error(what), signal(by), leaves(alone) {}
  int signal;
  bool leaves;  ///< the others go on
};

/// One rank's events. Times count from the barrier in the constructor, which all ranks make together; of a node that
/// has just joined, from so many seconds before.
class Trace {
 public:
  explicit Trace(comm::Hierarchy& ranks);
  Trace(comm::Hierarchy& ranks, double seconds_before);

  /// An event of exchange k.
  void add(const strategies::Phase& phase, int64_t k);
  void add(const std::vector<strategies::Phase>& phases, int64_t k);

  /// Chrome's trace-event format, all ranks' events: process = node, thread = rank. Collective; empty but on rank 0.
  std::string gather() const;

 private:
  struct Event {
    strategies::Phase phase;
    int64_t exchange;
  };

  std::string text() const;

  comm::Hierarchy& ranks_;
  double origin_;
  std::vector<Event> events_;
};

/// Where a run stands and what it says. Rank 0 writes and speaks; all calls but those that are const are collective.
class Run {
 public:
  /// Makes the directory, or takes that of the run that goes on, and locks it; `config` becomes config.toml. Everything
  /// is borrowed; `stop` may be null.
  Run(const TrainOptions& options, const std::string& config, comm::Hierarchy& ranks, StopRequest* stop);
  /// Of a node that has joined: a directory that others have made. Not collective.
  Run(const TrainOptions& options, const std::string& config, comm::Hierarchy& ranks, StopRequest* stop,
      std::string directory);

  const std::string& directory() const { return directory_; }
  const std::string& config() const { return config_; }
  bool writes() const { return ranks_.layout.rank == 0; }
  Safekeeping& safe() { return *safe_; }

  /// Training begins: opens the record behind the exchanges of `summary`. Not collective for a node that has joined.
  void begin(const Summary& summary, int64_t exchanges, const char* precision);
  /// Says where others join.
  void publish(const comm::RunDoors& doors);
  /// Nodes were lost or have joined: whoever is the first now goes on writing where the record ends, in a directory
  /// that it makes if it does not see the run's. `exchange`: the last one that all have.
  void go_on(const comm::Change& change, int64_t exchange, const Summary& summary, int64_t exchanges,
             const char* precision);
  void report(const Metrics& metrics, double seconds_so_far, double samples_per_second);
  /// Does what ranks asked for after an exchange.
  void heed(const Wishes& wishes, const std::function<Checkpoint()>& snapshot);
  /// Why lines of the record are missing; empty if none is.
  std::string problem() const { return metrics_file_ ? metrics_file_->problem() : ""; }

  /// For trace.json, if one is wanted: work, and what an exchange or a stretch of local steps was made of.
  void traced(const char* name, int64_t exchange, const std::function<void()>& work);
  void trace(const strategies::Phase& phase, int64_t exchange);
  void trace(const std::vector<strategies::Phase>& phases, int64_t exchange);

  /// No more lines about exchanges. Then the results are written; with all there, the run is over.
  void end_progress();
  void write_trace();
  void finish();

 private:
  void open_directory(const std::string& config);
  void expect_no_other_run();
  void open_record(const Summary& summary, int64_t exchanges, const char* precision);
  void take_over_lock();
  void take_over_record(const Summary& summary, int64_t exchanges, const char* precision);

  const TrainOptions& options_;
  const std::string config_;
  comm::Hierarchy& ranks_;
  std::string directory_;
  std::optional<io::DirectoryLock> lock_;  // rank 0
  std::unique_ptr<MetricsFile> metrics_file_;
  std::optional<Metrics> last_;  // reported, in an elastic run
  std::unique_ptr<Progress> progress_;
  std::optional<Trace> trace_;
  std::optional<Safekeeping> safe_;
};

}  // namespace prunex::train
