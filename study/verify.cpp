#include "study/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "launch/process.h"
#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/text/json.h"
#include "report/figures.h"
#include "report/report.h"
#include "report/verdict.h"

namespace prunex::study {
namespace {

namespace fs = std::filesystem;

struct Point {
  std::string title;
  double mbit = 0;
  double computed = 0, measured = 0;
  std::string error;
};

/// The directory of a run over that link.
std::string target_of(const std::string& directory, const std::string& name, int64_t seed, double mbit) {
  return fmt::format("{}/verify/{}-{}-{}", directory, name, seed, mbit);
}

std::vector<std::string> words(const report::Run& run, const Job& job, const std::string& target, double mbit,
                               const std::string& script, const RunnerOptions& runner) {
  std::vector<std::string> words{script,
                                 std::to_string(run.nodes()),
                                 std::to_string(run.ranks() / run.nodes()),
                                 fmt::format("{}", mbit),
                                 "--",
                                 fs::read_symlink(launch::kThisProgram).string(),
                                 "train",
                                 "--config",
                                 target + ".toml",
                                 "--run-dir",
                                 target,
                                 "--quiet",
                                 "--eval-every",
                                 "0"};
  if (!runner.data_dir.empty() && reads_data_dir(job)) words.insert(words.end(), {"--data-dir", runner.data_dir});
  return words;
}

/// The original's measured work, at the sizes of the run over that link, with that one's bytes and messages.
double computed_seconds(const report::Run& original, report::Run again, double mbit) {
  again.timed = original.timed.empty() ? original.exchanges : original.timed;
  return report::seconds_at(report::cost_of(again), mbit);
}

Point measure(const ComparisonRecord& record, Job job, const report::Run* original, double mbit,
              const VerifyOptions& options, const RunnerOptions& runner) {
  Point point{.title = job.title(), .mbit = mbit};
  if (original == nullptr || !original->summary) {
    point.error = "wanted a finished run";
    return point;
  }
  const auto target = target_of(record.directory(), job.name, job.seed, mbit);
  fs::remove_all(target);
  fs::create_directories(fs::path(target).parent_path());
  if (options.exchanges > 0) job.options = cut_short(std::move(job.options), options.exchanges);
  io::write_file_atomically(target + ".toml", config_of(job, record.directory()));
  const auto command = words(*original, job, target, mbit, options.script, runner);
  point.error = launch::error_of_run({.program = command.front(), .words = command});
  const report::Run again = report::read_run(target);
  if (!again.summary && point.error.empty()) point.error = "it left no summary.json";
  if (!point.error.empty()) return point;
  point.computed = computed_seconds(*original, again, mbit);
  point.measured = report::training_seconds(again.summary->seconds);
  return point;
}

/// Why no cluster can repeat it; empty if one can.
std::string reason_to_leave(const report::Run* run) {
  if (run == nullptr || !run->summary) return "";
  if (run->nodes() < 2) return "it has one node, which sends nothing";
  return run->has_equal_nodes() ? "" : "its nodes are of unequal size";
}

/// The points that DIRECTORY/verify.json holds.
nlohmann::ordered_json known_points(const std::string& path) {
  std::ifstream file(path);
  if (!file) return nlohmann::ordered_json::array();
  try {
    auto known = text::parse_ordered_json(std::string{std::istreambuf_iterator<char>(file), {}});
    const bool good =
        known.is_array() && std::all_of(known.begin(), known.end(), [](auto& p) { return p.is_object(); });
    return good ? known : throw std::invalid_argument("wanted a list of objects");
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("compare: {}: {}", path, error.what()));
  }
}

/// In the place of the same point, if there is one; one that failed does not replace one that did not.
void put(nlohmann::ordered_json& points, nlohmann::ordered_json point) {
  for (auto& known : points) {
    const auto same = [&](const char* key) { return known.value(key, nlohmann::ordered_json()) == point.at(key); };
    if (!same("name") || !same("seed") || !same("mbit") || !same("exchanges")) continue;
    if (point.at("error") == "" || known.value("error", "") != "") known = std::move(point);
    return;
  }
  points.push_back(std::move(point));
}

std::string path_of_points(const std::string& directory) {
  return directory + "/verify.json";
}

void write_points(const std::string& path, const nlohmann::ordered_json& points) {
  io::write_file_atomically(path, text::json_text(points, 1) + "\n");
}

void print(const Point& point) {
  if (!point.error.empty()) {
    fmt::print("{:<32} {:>8} {}\n", point.title, point.mbit, point.error);
  } else {
    fmt::print("{:<32} {:>8} {:>12.1f} {:>12.1f} {:>10.2f}\n", point.title, point.mbit, point.computed, point.measured,
               point.measured / point.computed);
  }
  std::fflush(stdout);
}

}  // namespace

void check_cluster(const VerifyOptions& options) {
  if (access(options.script.c_str(), X_OK) == 0) return;
  throw std::invalid_argument(
      fmt::format("`cluster`: got '{}', wanted a script that can be run, such as bench/cluster.sh of prunex's source",
                  options.script));
}

size_t verify(const ComparisonRecord& record, const std::vector<Job>& jobs, const VerifyOptions& options,
              const RunnerOptions& runner) {
  size_t failures = 0;
  const auto path = path_of_points(record.directory());
  nlohmann::ordered_json points = known_points(path);
  const auto runs = report::find_runs({record.directory()}).runs;
  if (!runner.quiet)
    say(fmt::format("verify: {} runs at {} rates by {}\n", jobs.size(), options.mbit.size(), options.script));
  fmt::print("{:<32} {:>8} {:>12} {:>12} {:>10}\n", "run", "Mbit/s", "computed s", "measured s", "ratio");
  for (const auto& job : jobs) {
    const auto original = std::find_if(runs.begin(), runs.end(), [&](const report::Run& run) {
      return fs::path(run.directory) == fs::path(record.path_of(job));
    });
    const report::Run* run = original == runs.end() ? nullptr : &*original;
    if (const auto why = reason_to_leave(run); !why.empty()) {
      if (!runner.quiet) say(fmt::format("verify: {} is left out: {}\n", job.title(), why));
      continue;
    }
    for (const double mbit : options.mbit) {
      const Point point = measure(record, job, run, mbit, options, runner);
      print(point);
      if (!point.error.empty()) ++failures;
      put(points, {{"name", job.name},
                   {"seed", job.seed},
                   {"mbit", mbit},
                   {"exchanges", options.exchanges},
                   {"computed_seconds", point.computed},
                   {"measured_seconds", point.measured},
                   {"error", point.error}});
      write_points(path, points);
    }
  }
  return failures;
}

void forget_points(const std::string& directory, const std::set<std::string>& names) {
  const auto path = path_of_points(directory);
  if (names.empty() || !fs::exists(path)) return;
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  for (auto& point : known_points(path)) {
    const std::string name = point.value("name", "");
    if (!names.contains(name)) {
      kept.push_back(std::move(point));
      continue;
    }
    const auto target = target_of(directory, name, point.value("seed", int64_t(0)), point.value("mbit", 0.0));
    fs::remove_all(target);
    fs::remove(target + ".toml");
  }
  write_points(path, kept);
}

}  // namespace prunex::study
