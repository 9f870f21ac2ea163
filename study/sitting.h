// Timings: the first seed of every run once more, cut short, all in one sitting on a machine that does nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "study/comparison_runner.h"

namespace prunex::study {

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

/// Whether all are done, and of one sitting: then there is nothing to do.
bool are_of_one_sitting(const ComparisonRecord& record, const std::vector<Job>& timings);

/// Runs `timings` one after the other, all of them anew unless are_of_one_sitting, so that their seconds
/// are of one machine in one state. A busy machine ends it.
SittingOutcome run_sitting(ComparisonRecord& record, const std::vector<Job>& timings, RunnerOptions runner,
                           const nlohmann::ordered_json& head, const SittingOptions& options);

}  // namespace prunex::study
