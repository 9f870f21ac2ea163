#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "report/recorded_exchanges.h"
#include "report/report.h"

namespace prunex::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Finder {
 public:
  void look_in(const fs::path& directory) {
    if (fs::is_regular_file(directory / "compare.json")) return add_comparison(directory);
    if (is_run_directory(directory.string())) {
      if (is_new(directory)) found.runs.push_back(read_run(directory.string()));
      return;
    }
    std::set<fs::path> below;
    for (const auto& entry : fs::directory_iterator(directory, fs::directory_options::skip_permission_denied)) {
      if (entry.is_directory() && !entry.is_symlink()) below.insert(entry.path());
    }
    for (const auto& path : below) look_in(path);
  }

  Findings found;

 private:
  /// Its runs in its order, by its names.
  void add_comparison(const fs::path& directory) {
    try {
      const json comparison = read_json(directory / "compare.json");
      const auto before = found.runs.size();
      for (const auto& run : comparison.at("runs")) add_entry(directory, run);
      if (comparison.contains("timings")) {
        for (const auto& timing : comparison["timings"]) add_timing(timing, before);
      }
      for (const auto& pilot : comparison.at("pilots")) found.pilots.push_back(pilot_of(pilot));
      add_checks(directory);
      if (comparison.contains("command")) found.comparisons.push_back(comparison["command"]);
    } catch (const json::exception& error) {
      throw std::invalid_argument(fmt::format("report: {}/compare.json: {}", directory.string(), error.what()));
    }
  }

  static json read_json(const fs::path& path) {
    std::ifstream file(path);
    return json::parse(file);
  }

  static Pilot pilot_of(const json& entry) {
    Pilot pilot{entry.at("name"), entry.at("rate"), std::nullopt};
    if (entry.contains("summary")) pilot.accuracy = entry["summary"].value("validation_accuracy", 0.0);
    return pilot;
  }

  /// To the runs of its name among those from the number `first` on.
  void add_timing(const json& entry, size_t first) {
    if (!entry.contains("exchanges")) return;
    const auto timed = exchanges_of(entry["exchanges"]);
    for (size_t i = first; i < found.runs.size(); ++i) {
      if (found.runs[i].name == entry.at("name")) found.runs[i].timed = timed;
    }
  }

  void add_checks(const fs::path& directory) {
    if (!fs::exists(directory / "verify.json")) return;
    for (const auto& check : read_json(directory / "verify.json")) {
      if (check.at("measured_seconds") == 0) continue;
      found.checks.push_back(
          {check.at("name"), check.at("mbit"), check.at("computed_seconds"), check.at("measured_seconds")});
    }
  }

  /// What its directory holds, else what the record does.
  void add_entry(const fs::path& directory, const json& entry) {
    const std::string path = directory / entry.at("directory");
    if (entry.value("state", "") == "failed") {
      found.failures.push_back({entry.at("directory"), entry.value("error", "")});
      return;
    }
    const bool is_there = is_run_directory(path);
    if ((!is_there && !entry.contains("summary")) || !is_new(path)) return;
    Run run = is_there ? read_run(path) : recorded_run(path, entry);
    run.name = entry.at("name");
    run.declared = declared_options(entry);
    run.processor = entry.value("processor", "");
    found.runs.push_back(std::move(run));
  }

  bool is_new(const fs::path& directory) { return seen_.insert(fs::weakly_canonical(directory)).second; }

  std::set<fs::path> seen_;
};

}  // namespace

Findings find_runs(const std::vector<std::string>& directories) {
  Finder finder;
  for (const auto& directory : directories) {
    if (!fs::is_directory(directory))
      throw std::invalid_argument(fmt::format("report: {}: no such directory", directory));
    const auto before = finder.found.runs.size();
    finder.look_in(directory);
    if (finder.found.runs.size() == before) {
      throw std::invalid_argument(fmt::format(
          "report: {}: no run in it that was not named before; wanted metrics.jsonl or summary.json in it or below",
          directory));
    }
  }
  return std::move(finder.found);
}

}  // namespace prunex::report
