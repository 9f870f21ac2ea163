// From directories of runs to one page.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace prunex::report {

struct Report {
  std::string html;
  std::string json;     ///< all tables of the page, as numbers
  std::string summary;  ///< the first table of every task, for a terminal
  std::vector<std::string> problems;
};

/// All runs in these directories: run directories, comparisons (compare.json), or folders that hold such at any depth.
/// Throws std::invalid_argument that names a directory in which there is none. In order, without repetitions.
std::vector<Run> find_runs(const std::vector<std::string>& directories);

/// `command` is stated on the page.
Report make_report(const std::vector<Run>& runs, const std::string& command);

}  // namespace prunex::report
