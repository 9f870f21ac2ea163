#include "tools/prunex/verify.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <filesystem>

#include "prunex/io/atomic_file.h"
#include "report/bandwidth.h"
#include "report/figures.h"
#include "tools/prunex/child_process.h"

namespace prunex::tools {
namespace {

namespace fs = std::filesystem;

struct Point {
  std::string title;
  double mbit = 0;
  double computed = 0, measured = 0;
  std::string error;
};

std::vector<std::string> words(const Job& job, const report::Run& run, const std::string& target, double mbit,
                               const VerifyOptions& options) {
  std::vector<std::string> words{options.script,
                                 std::to_string(run.nodes()),
                                 std::to_string(run.ranks() / run.nodes()),
                                 fmt::format("{}", mbit),
                                 "--",
                                 fs::read_symlink(kThisProgram).string(),
                                 "train",
                                 "--config",
                                 run.directory + "/config.toml",
                                 "--run-dir",
                                 target,
                                 "--quiet",
                                 "--eval-every",
                                 "0",
                                 "--seed",
                                 std::to_string(job.seed)};
  if (options.exchanges > 0) words.insert(words.end(), {"--exchanges", std::to_string(options.exchanges)});
  return words;
}

/// The error that it ends with; empty if it succeeds.
std::string run_to_end(const std::vector<std::string>& words) {
  ChildProcess child(words.front(), words);
  std::string last;
  const auto keep_last = [&] {
    for (auto& line : child.read_lines()) last = std::move(line);
  };
  while (!child.ended()) {
    pollfd descriptor{child.descriptor(), POLLIN, 0};
    poll(&descriptor, 1, 200);
    keep_last();
  }
  keep_last();
  if (child.status() == 0) return "";
  return last.empty() ? fmt::format("status {}", WEXITSTATUS(child.status())) : last;
}

/// The original's measured work for as many steps, with the bytes and messages of the run over that link.
double computed_seconds(const report::Run& original, const report::Run& again, double mbit) {
  const double share = static_cast<double>(again.summary->steps) / static_cast<double>(original.summary->steps);
  report::Cost cost = report::cost_of(again);
  const report::Cost before = report::cost_of(original);
  cost.local = before.local * share;
  cost.exchange = before.exchange * share;
  return report::seconds_at(cost, mbit);
}

Point measure(const ComparisonRecord& record, const Job& job, double mbit, const VerifyOptions& options) {
  Point point{.title = job.title(), .mbit = mbit};
  const report::Run original = report::read_run(record.path_of(job));
  if (!original.summary || original.nodes() < 2) {
    point.error = "wanted a finished run on two nodes or more, with its directory";
    return point;
  }
  const auto target = fmt::format("{}/verify/{}-{}-{}", record.directory(), job.name, job.seed, mbit);
  fs::remove_all(target);
  fs::create_directories(fs::path(target).parent_path());
  point.error = run_to_end(words(job, original, target, mbit, options));
  const report::Run again = report::read_run(target);
  if (!again.summary) return point;
  point.computed = computed_seconds(original, again, mbit);
  point.measured = report::training_seconds(again.summary->seconds);
  return point;
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

size_t verify(const ComparisonRecord& record, const std::vector<Job>& jobs, const VerifyOptions& options,
              const RunnerOptions& runner) {
  size_t failures = 0;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (!runner.quiet)
    fmt::print(stderr, "verify: {} runs at {} rates by {}\n", jobs.size(), options.mbit.size(), options.script);
  fmt::print("{:<32} {:>8} {:>12} {:>12} {:>10}\n", "run", "Mbit/s", "computed s", "measured s", "ratio");
  for (const auto& job : jobs) {
    for (const double mbit : options.mbit) {
      const Point point = measure(record, job, mbit, options);
      print(point);
      if (!point.error.empty()) ++failures;
      json.push_back({{"name", job.name},
                      {"seed", job.seed},
                      {"mbit", mbit},
                      {"exchanges", options.exchanges},
                      {"computed_seconds", point.computed},
                      {"measured_seconds", point.measured},
                      {"error", point.error}});
      io::write_file_atomically(record.directory() + "/verify.json", json.dump(1) + "\n");
    }
  }
  return failures;
}

}  // namespace prunex::tools
