#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "report/json_fields.h"
#include "report/recorded_run.h"
#include "report/report.h"
#include "report/run.h"

namespace prunex::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostRuns = 10'000;
const std::set<std::string> kRecords{"config.toml",  "metrics.jsonl",    "summary.json",     "structure.json",
                                     "answers.json", "trace.json",       "compare.json",     "verify.json",
                                     "model.pt2",    "membership.jsonl", "model.safetensors"};

class Finder {
 public:
  void look_in(const fs::path& directory) {
    std::error_code unreadable;
    if (fs::is_regular_file(directory / "compare.json", unreadable)) return add_comparison(directory);
    if (is_run_directory(directory.string())) {
      if (is_new(directory)) add(read_run(directory.string()));
      return;
    }
    std::set<fs::path> below;
    for (const auto& entry : fs::directory_iterator(directory, fs::directory_options::skip_permission_denied)) {
      if (!entry.is_symlink() && entry.is_directory(unreadable)) below.insert(entry.path());
    }
    for (const auto& path : below) look_in(path);
  }

  Findings found;
  bool has_repetitions = false;  ///< some run was come upon again

 private:
  void add_comparison(const fs::path& directory) {
    const auto record = directory / "compare.json", checks = directory / "verify.json";
    found.records.push_back(directory.string());
    within("report: " + record.string(), [&] { add_record(directory, read(record)); });
    if (fs::exists(checks)) within("report: " + checks.string(), [&] { add_checks(read(checks)); });
  }

  /// Its runs in its order, by its names.
  void add_record(const fs::path& directory, const json& record) {
    const auto before = found.runs.size();
    each(record, "runs", [&](const json& run) { add_entry(directory, run); });
    for (size_t i = before; i < found.runs.size(); ++i) name_network(found.runs[i], before);
    if (record.contains("timings")) each(record, "timings", [&](const json& timing) { add_timing(timing, before); });
    for (size_t i = before; i < found.runs.size(); ++i) {  // nothing looks for names from here on
      const auto of = found.runs[i].declared.find("model-of");
      if (of != found.runs[i].declared.end()) found.runs[i].name += " after " + of->second;
    }
    each(record, "pilots", [&](const json& pilot) { found.pilots.push_back(pilot_of(directory, pilot)); });
    if (record.contains("command")) found.comparisons.push_back(required<std::string>(record, "command"));
  }

  /// A run that begins with another run's network is of the network with which that one began.
  void name_network(Run& run, size_t first) const {
    const Run* origin = &run;
    for (size_t i = first; i < found.runs.size(); ++i) {  // no more steps than there are runs
      const auto of = origin->declared.find("model-of");
      if (of == origin->declared.end()) break;
      const auto begin = found.runs.begin() + static_cast<std::ptrdiff_t>(first);
      const auto other = std::find_if(begin, found.runs.end(), [&](const Run& one) { return one.name == of->second; });
      if (other == found.runs.end()) return;
      origin = &*other;
    }
    if (origin == &run) return;
    for (const std::string option : {"model", "width", "norm"}) run.options[option] = origin->option(option);
  }

  static json read(const fs::path& path) {
    std::ifstream file = open_bounded(path.string(), kLargestComparison);
    return read_json(file);
  }

  static Pilot pilot_of(const fs::path& directory, const json& entry) {
    return {directory.string(), required<std::string>(entry, "name"), required<double>(entry, "rate"),
            maybe(part(entry, "summary"), "validation_accuracy")};
  }

  /// To the runs of its name among those from the number `first` on.
  void add_timing(const json& entry, size_t first) {
    if (!entry.contains("exchanges")) return;
    const auto name = required<std::string>(entry, "name");
    const auto timed = within("exchanges", [&] { return exchanges_of(entry["exchanges"]); });
    for (size_t i = first; i < found.runs.size(); ++i) {
      if (found.runs[i].name != name) continue;
      found.runs[i].timed = timed;
      found.runs[i].sitting = word(entry, "sitting");
      found.runs[i].timed_on = word(entry, "processor");
    }
  }

  void add_checks(const json& checks) {
    each(checks, [&](const json& check) {
      const auto measured = required<double>(check, "measured_seconds");
      if (measured == 0) return;
      found.checks.push_back({required<std::string>(check, "name"), required<double>(check, "mbit"),
                              required<double>(check, "computed_seconds"), measured});
    });
  }

  /// What its directory holds, else what the record does.
  void add_entry(const fs::path& directory, const json& entry) {
    const auto place = required<std::string>(entry, "directory");
    refuse_outside(place);
    const std::string path = directory / place;
    if (word(entry, "state") == "failed") {
      found.failures.push_back({place, word(entry, "error")});
      return;
    }
    const bool is_there = is_run_directory(path);
    if (!is_there && !entry.contains("summary")) found.waiting.push_back(place);
    if ((!is_there && !entry.contains("summary")) || !is_new(path)) return;
    Run run = is_there ? read_run(path) : recorded_run(directory, entry);
    run.name = required<std::string>(entry, "name");
    run.declared = options_under("options", entry);
    run.options.insert(run.declared.begin(), run.declared.end());
    const auto of_preset = options_under("preset_options", entry);
    run.options.insert(of_preset.begin(), of_preset.end());
    run.has_unknown_preset = !is_there && run.declared.contains("preset") && !entry.contains("preset_options");
    run.processor = word(entry, "processor");
    run.commit = word(entry, "commit");
    run.prunex = word(part(entry, "versions"), "prunex");
    run.libtorch = word(part(entry, "versions"), "libtorch");
    add(std::move(run));
  }

  void add(Run run) {
    if (found.runs.size() == kMostRuns) {
      throw std::invalid_argument(fmt::format("report: got more than {} runs", kMostRuns));
    }
    found.runs.push_back(std::move(run));
  }

  /// A record, which may come from elsewhere, says where to read.
  static void refuse_outside(const std::string& place) {
    const fs::path path(place);
    if (path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) {
      throw std::invalid_argument(fmt::format("directory: got {}, wanted one below the comparison", place));
    }
  }

  bool is_new(const fs::path& directory) {
    const bool inserted = seen_.insert(fs::weakly_canonical(directory)).second;
    has_repetitions = has_repetitions || !inserted;
    return inserted;
  }

  std::set<fs::path> seen_;
};

}  // namespace

Findings find_runs(const std::vector<std::string>& directories) {
  Finder finder;
  for (const auto& directory : directories) {
    if (!fs::is_directory(directory)) {
      throw std::invalid_argument(fmt::format(
          "report: {}: {}", directory,
          fs::exists(directory) ? "a file, wanted the directory of a run or of a comparison" : "no such directory"));
    }
    const auto before = finder.found.runs.size();
    finder.has_repetitions = false;
    finder.found.directories.push_back(directory);
    finder.look_in(directory);
    if (finder.found.runs.size() == before) {
      throw std::invalid_argument(
          fmt::format("report: {}: no run in it{}; wanted metrics.jsonl or summary.json in it or below", directory,
                      finder.has_repetitions ? " that was not named before" : ""));
    }
  }
  return std::move(finder.found);
}

namespace {

bool is_record(const std::string& path, const Findings& findings) {
  std::error_code ignored;  // of what is not there
  for (const fs::path& file : {fs::path(path), fs::weakly_canonical(path, ignored)}) {
    if (!kRecords.contains(file.filename().string())) continue;
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const auto is_here = [&](const std::string& directory) { return fs::equivalent(folder, directory, ignored); };
    if (std::any_of(findings.records.begin(), findings.records.end(), is_here)) return true;
    const auto is_of = [&](const Run& run) { return is_here(run.directory); };
    if (std::any_of(findings.runs.begin(), findings.runs.end(), is_of)) return true;
  }
  return false;
}

}  // namespace

void refuse_record(const std::string& option, const std::string& path, const Findings& findings) {
  if (path.empty() || !is_record(path, findings)) return;
  throw std::invalid_argument(
      fmt::format("{}: got {}, which is a record of a run or comparison: wanted another file", option, path));
}

}  // namespace prunex::report
