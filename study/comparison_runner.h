// Runs the jobs of a comparison as child processes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "study/comparison_record.h"

namespace prunex::study {

struct RunnerOptions {
  int jobs = 1;          ///< at the same time
  std::string data_dir;  ///< --data-dir of every run; empty: the runs' own
  bool quiet = false;    ///< no progress on standard error
};

/// Where a run is, as a line of its `log` json says.
struct RunProgress {
  double share = 0;  ///< of all exchanges, whatever the phase
  std::string text;  ///< "exchange 3/12  loss 1.9"
};
std::optional<RunProgress> progress_in(const std::string& line);

/// Whether the job's data set is one of a folder.
bool reads_data_dir(const Job& job);

/// The words of the command of a job; `resume` goes on from its last checkpoint.
std::vector<std::string> words_of(const ComparisonRecord& record, const Job& job, const RunnerOptions& options,
                                  bool resume);

/// Starts the job with `prunex train --check`: std::invalid_argument with what it says if it could not train.
void check_job(const Job& job, const RunnerOptions& options);

class ComparisonRunner {
 public:
  /// `total`: jobs of the whole comparison; `head`: see ComparisonRecord::write. From the main thread, before others
  /// start: blocks SIGINT and SIGTERM, which end the children instead.
  ComparisonRunner(ComparisonRecord& record, RunnerOptions options, nlohmann::ordered_json head, size_t total);
  ~ComparisonRunner();
  ComparisonRunner(const ComparisonRunner&) = delete;
  ComparisonRunner& operator=(const ComparisonRunner&) = delete;

  /// Runs those that are not done; after every one compare.json is written. Failures are noted, and the rest goes on.
  void run(const std::vector<Job>& jobs);
  /// The signal that ended it; 0 if none did. Then nothing more is started.
  int interrupted_by() const;
  size_t failures() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

struct VerifyOptions {
  std::vector<double> mbit;
  int exchanges = 0;  ///< 0: whole runs
  std::string script = "bench/cluster.sh";
};

/// Refuses a script that cannot be run.
void check_cluster(const VerifyOptions& options);

/// Runs every finished job again over links of every rate, prints a table and adds to DIRECTORY/verify.json. A run that
/// fails there is a line of the table; how many did is returned.
size_t verify(const ComparisonRecord& record, const std::vector<Job>& jobs, const VerifyOptions& options,
              const RunnerOptions& runner);

}  // namespace prunex::study
