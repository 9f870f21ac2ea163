// compare.json: what a comparison has done so far. Kept with the results, it lets others go on where one stopped.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prunex/io/files.h"
#include "study/comparison.h"

namespace prunex::study {

enum class JobState { kWaiting, kDone, kFailed };

class ComparisonRecord {
 public:
  /// Reads DIRECTORY/compare.json if it is there. A broken one is a std::invalid_argument. `made_by` goes into the
  /// entry of every run that begins: the build and the machine.
  explicit ComparisonRecord(std::string directory, nlohmann::ordered_json made_by = {});

  /// Makes the directory, for nobody else until this ends; std::runtime_error if another process has it.
  void claim();
  /// Whether something was done of the runs of a name.
  bool knows(const std::string& name) const;
  /// As if nothing had been done of the runs of a name; what their directories hold stays until remove_forgotten().
  void forget(const std::string& name);
  bool is_forgotten(const std::string& name) const { return forgotten_.contains(name); }
  /// Removes those directories, then writes compare.json.
  void remove_forgotten(const nlohmann::ordered_json& head);
  /// As if nothing had been done of a job: its directory is removed.
  void remove(const Job& job);

  /// Whether it is finished, with these options, in this place or another: then its summary is here. A job that was
  /// finished when the last comparison was killed counts, too.
  JobState state_of(const Job& job) const;
  /// A job that is here with other options: what it was asked before. Going on would mix two questions.
  bool is_stale(const Job& job) const;
  /// From here on timings are of this sitting.
  void sit(const std::string& when) { sitting_ = when; }
  /// In which a timing was made; empty where nothing says so.
  std::string sitting_of(const Job& job) const;
  /// `what` is the error of a failed job. What is noted as done stays so. A job is made by what noted it last as
  /// waiting, whoever finds that it is done; one that goes on from a checkpoint names the commits before, too.
  void note(const Job& job, JobState state, const std::string& what = "");

  /// The rate with the best accuracy on held-out images, mean over the seeds of its pilots, among those whose pilots
  /// all succeeded; nothing until all have ended, or if there is none.
  std::optional<double> rate_of(const NamedRun& run, const std::vector<Job>& pilots) const;

  /// Writes compare.json: `head`, then what was noted, now and before, a line each. Atomic.
  void write(const nlohmann::ordered_json& head) const;

  /// Whether a run is done.
  bool has_results() const;
  /// "NAME/SEED" of the runs in the record that a comparison does not have, and that its report shows all the same.
  std::vector<std::string> beside(const Comparison& comparison) const;

  const std::string& directory() const { return directory_; }
  /// Of a finished job: its summary.json, without traffic by operation; else null.
  nlohmann::ordered_json summary_of(const Job& job) const;
  std::string path_of(const Job& job) const { return directory_ + "/" + job.directory; }
  /// Whether it can go on from where it was stopped.
  bool has_checkpoint(const Job& job) const;

 private:
  const nlohmann::ordered_json* find(const Job& job) const;
  nlohmann::ordered_json maker_of(const Job& job, JobState state) const;

  std::string directory_;
  nlohmann::ordered_json made_by_;
  std::string sitting_;
  std::set<std::string> forgotten_;  ///< names
  std::optional<io::DirectoryLock> lock_;
  std::map<JobKind, std::vector<nlohmann::ordered_json>> entries_;
};

/// Of a run's directory, if it is there. Throws std::runtime_error if `prunex train` is still at work in it.
void remove_run(const std::string& path);

/// The machine: processor, cores, memory.
nlohmann::ordered_json describe_host();

/// With the further rates that pilots have asked for so far: while the best is the lowest, half of it, while it is the
/// highest, twice that.
Comparison widened(Comparison comparison, const ComparisonRecord& record);

}  // namespace prunex::study
