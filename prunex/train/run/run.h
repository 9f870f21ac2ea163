// A run as files and lines: its directory, checkpoints, metrics, trace and progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/io/files.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/options.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/run/metrics_file.h"
#include "prunex/train/run/progress.h"
#include "prunex/train/run/safekeeping.h"
#include "prunex/train/run/trace.h"

namespace prunex::train {

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
  void begin(const Summary& summary, int64_t exchanges);
  /// Says where others join.
  void publish(const comm::RunDoors& doors);
  /// Nodes were lost or have joined: whoever is the first now goes on writing where the record ends, in a directory
  /// that it makes if it does not see the run's. `exchange`: the last one that all have.
  void go_on(const comm::Change& change, int64_t exchange, const Summary& summary, int64_t exchanges);
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
  void open_record(const Summary& summary, int64_t exchanges);
  void take_over_lock();
  void take_over_record(const Summary& summary, int64_t exchanges);

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
