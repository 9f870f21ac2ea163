// Finished runs of a comparison once more, over emulated links.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "study/comparison_runner.h"

namespace prunex::study {

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

/// Removes the points of runs of these names, and what was run for them, from DIRECTORY.
void forget_points(const std::string& directory, const std::set<std::string>& names);

}  // namespace prunex::study
