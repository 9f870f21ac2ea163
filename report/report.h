// From directories of runs to one page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run.h"

namespace prunex::report {

struct Report {
  std::string html;
  std::string json;     ///< all tables of the page, as numbers
  std::string summary;  ///< verdict and first table of every task, for a terminal
  std::vector<std::string> problems;
};

/// A learning rate that a comparison tried.
struct Pilot {
  std::string comparison;  ///< its directory
  std::string name;
  double rate = 0;
  std::optional<double> accuracy;  ///< on held-out images; nothing if it failed
};

/// A run at a bandwidth: computed, and on the emulated cluster.
struct Check {
  std::string name;
  double mbit = 0, computed = 0, measured = 0;  ///< seconds
};

struct Failure {
  std::string name, error;
};

struct Findings {
  std::vector<Run> runs;
  std::vector<Pilot> pilots;
  std::vector<Check> checks;
  std::vector<Failure> failures;
  std::vector<std::string> waiting;      ///< runs of comparisons that have not begun
  std::vector<std::string> comparisons;  ///< commands
  std::vector<std::string> directories;  ///< that were looked in
  std::vector<std::string> records;      ///< directories of comparisons among them and below
};

inline constexpr uintmax_t kLargestComparison = 1'000'000'000;  ///< bytes of a compare.json, which has all curves

/// All runs in these directories: run directories, comparisons (compare.json), or folders that hold such at any depth.
/// Throws std::invalid_argument that names a directory in which there is none. In order, without repetitions.
Findings find_runs(const std::vector<std::string>& directories);

/// Throws std::invalid_argument that names `option` if a file at `path` would lie in the directory of one of the runs
/// or comparisons, called as what they keep there.
void refuse_record(const std::string& option, const std::string& path, const Findings& findings);

/// What a page says of itself.
struct Origin {
  std::string command;
  std::string folder = ".";  ///< where the page will stand; its links begin there
  std::string date, version;
};

Report make_report(const Findings& findings, const Origin& origin);

/// A line per exchange of every run, below a line of names: those of metrics.jsonl.
std::string exchanges_csv(const std::vector<Run>& runs);

}  // namespace prunex::report
