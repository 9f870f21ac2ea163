// How a run keeps what it has: checkpoints by the clock or by exchanges, and an end on request.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "prunex/comm/hierarchy.h"
#include "prunex/stopwatch.h"
#include "prunex/train/options.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/run/checkpoint.h"

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

}  // namespace prunex::train
