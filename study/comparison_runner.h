// Runs the jobs of a comparison as child processes.
#pragma once

#include <functional>
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

// Timings (sitting.cpp): the first seed of every run once more, cut short, all in one sitting on a machine that does
// nothing else.

/// Seconds of all processors since the machine started.
struct ProcessorSeconds {
  double busy = 0, all = 0;
};

/// Of the text of /proc/stat, whose numbers are in hundredths; time that a hypervisor gave to others is busy.
ProcessorSeconds processor_seconds(const std::string& stat);

/// The share of all processors that others than this process keep busy: of the first second in which it is at most
/// `most`, else the least of three. Where `most` is 1 nothing has to be measured.
double load_of_others(double most);

struct SittingOptions {
  double most_load = 0.05;  ///< share of all processors that others may keep busy when a timing begins
  std::string when;         ///< what the timings' entries are marked with
  std::function<double(double)> load = load_of_others;
};

struct SittingOutcome {
  size_t failures = 0;
  int signal = 0;    ///< that ended it; 0 if none did
  std::string busy;  ///< why the machine was refused; empty if it was not
};

/// Runs `timings` one after the other, all of them anew unless all are done and of one sitting, so that their seconds
/// are of one machine in one state. A busy machine ends it.
SittingOutcome run_sitting(ComparisonRecord& record, const std::vector<Job>& timings, RunnerOptions runner,
                           const nlohmann::ordered_json& head, const SittingOptions& options);

}  // namespace prunex::study
