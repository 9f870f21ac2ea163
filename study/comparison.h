// The file of prunex compare: named runs times seeds. docs/report.md, "Comparisons".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/run.h"

namespace prunex::text {
struct Option;
class OptionList;
}  // namespace prunex::text

namespace prunex::study {

/// A grid does not widen beyond so many rates.
inline constexpr size_t kMostRates = 10;

/// Options of `prunex train` by name, each as a TOML value.
using OptionValues = std::map<std::string, std::string>;

using report::kRunFiles;
using report::RunFile;

struct NamedRun {
  std::string name;
  OptionValues options;       ///< the common ones included
  OptionValues pilot;         ///< of its pilots: another length, held-out images; empty: it has none
  std::vector<double> rates;  ///< learning rates to choose from in a pilot; empty: no pilot
  bool widens = false;        ///< further rates are tried while the best is the lowest or the highest
  std::vector<int64_t> seeds;
  std::map<std::string, std::string> taken_from;  ///< by a key of kRunFiles: a run before this one that has these seeds
  OptionValues stand_in;                          ///< of a run with model-of: the network that its file comes from
};

struct Comparison {
  std::string path;
  std::vector<NamedRun> runs;
  std::vector<int64_t> pilot_seeds;  ///< of every rate; empty: one pilot, with the seed that its options may set
};

enum class JobKind {
  kRun,
  kPilot,   ///< a short run that tries a learning rate
  kTiming,  ///< a short run with the machine to itself: how long steps of a run take
};

/// One `prunex train`.
struct Job {
  std::string name;
  JobKind kind = JobKind::kRun;
  int64_t seed = 0;
  double rate = 0;        ///< of a pilot
  std::string directory;  ///< below the comparison's: NAME/SEED, NAME/pilot-RATE, NAME/pilot-RATE-SEED or NAME/timing
  OptionValues options;
  std::map<std::string, std::string> taken_from;  ///< by a key of kRunFiles: a run's directory below the comparison's
  OptionValues stand_in;                          ///< the run's

  std::string title() const;
};

/// An option of `prunex train` that a file may set, by its name; null: there is none.
using FindOption = std::function<const text::Option*(const std::string&)>;

/// Reads a file. Whatever is wrong is a std::invalid_argument that names file and line.
Comparison read_comparison(const std::string& path, const FindOption& option);

/// The pilots of all runs that have rates.
std::vector<Job> pilots_of(const Comparison& comparison);
/// All runs, seed by seed, so that an unfinished comparison has the first seeds of everything. `rate_of`: the rate that
/// the pilot of a run chose; a run that waits for one is left out.
std::vector<Job> jobs_of(const Comparison& comparison,
                         const std::function<std::optional<double>(const NamedRun&)>& rate_of);

/// The first job of every name.
std::vector<Job> first_seeds_of(const std::vector<Job>& runs);
/// Options of a run of so many exchanges, without warm-up. In the later half masks are final, and what cuts to a target
/// leave is trained; one that begins with its cut has it after the first exchange. Phases of their own are not there.
OptionValues cut_short(OptionValues options, int64_t exchanges);
/// Runs that are cut short so.
std::vector<Job> timings_of(const std::vector<Job>& runs, int64_t exchanges);

/// What a job in the comparison of that directory takes by `file.key`, which it has.
std::string path_for(const Job& job, const RunFile& file, const std::string& directory);
/// Sets the options of `prunex train` that have these values. A folder of images need not be there yet.
void set_options(text::OptionList& list, const OptionValues& values);
/// The lines of a file for `prunex train --config`, of a job in the comparison of that directory.
std::string config_of(const Job& job, const std::string& directory);

}  // namespace prunex::study
