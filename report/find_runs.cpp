#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "report/report.h"

namespace prunex::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Finder {
 public:
  void look_in(const fs::path& directory) {
    if (fs::is_regular_file(directory / "compare.json")) return add_comparison(directory);
    if (is_run_directory(directory.string())) return add(directory, "");
    std::set<fs::path> below;
    for (const auto& entry : fs::directory_iterator(directory, fs::directory_options::skip_permission_denied)) {
      if (entry.is_directory() && !entry.is_symlink()) below.insert(entry.path());
    }
    for (const auto& path : below) look_in(path);
  }

  std::vector<Run> runs;

 private:
  /// Its runs in its order, by its names.
  void add_comparison(const fs::path& directory) {
    std::ifstream file(directory / "compare.json");
    json comparison;
    try {
      comparison = json::parse(file);
      for (const auto& run : comparison.at("runs")) add(directory / run.at("directory"), run.at("name"));
    } catch (const json::exception& error) {
      throw std::invalid_argument(fmt::format("{}/compare.json: {}", directory.string(), error.what()));
    }
  }

  void add(const fs::path& directory, const std::string& name) {
    if (!is_run_directory(directory.string())) return;
    if (!seen_.insert(fs::weakly_canonical(directory)).second) return;
    runs.push_back(read_run(directory.string()));
    runs.back().name = name;
  }

  std::set<fs::path> seen_;
};

}  // namespace

std::vector<Run> find_runs(const std::vector<std::string>& directories) {
  Finder finder;
  for (const auto& directory : directories) {
    if (!fs::is_directory(directory))
      throw std::invalid_argument(fmt::format("report: {}: no such directory", directory));
    const auto before = finder.runs.size();
    finder.look_in(directory);
    if (finder.runs.size() == before) {
      throw std::invalid_argument(fmt::format(
          "report: {}: no run in it that was not named before; wanted metrics.jsonl or summary.json in it or below",
          directory));
    }
  }
  return std::move(finder.runs);
}

}  // namespace prunex::report
