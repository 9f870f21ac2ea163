// What keeps a run from being lost: checkpoints in time, and an end on request that can be gone on from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "prunex/comm/hierarchy.h"
#include "prunex/train/checkpoint.h"
#include "prunex/train/options.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/stop_request.h"

namespace prunex::train {

/// All calls but wishes() and way_on() are collective.
class Safekeeping {
 public:
  /// `stop` may be null: then nobody asks.
  Safekeeping(const TrainOptions& options, const std::string& run_directory, const std::string& config,
              comm::Hierarchy& ranks, StopRequest* stop);

  /// What a resumed run goes on from; nothing if it starts. See Checkpoints::load.
  std::optional<Checkpoint> load();
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

}  // namespace prunex::train
