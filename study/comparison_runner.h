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

/// Looks at the options alone: std::invalid_argument with what is refused of them. Folders of images may be missing.
void check_options_of(const ComparisonRecord& record, const Job& job);

/// Looks at the options, then starts the job with `prunex train --check`: std::invalid_argument with what is said if it
/// could not train. Of what other runs have not left yet, a network is stood for, and the rest is left out.
void check_job(const ComparisonRecord& record, const Job& job, const RunnerOptions& options);

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

}  // namespace prunex::study
