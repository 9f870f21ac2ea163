#include "study/sitting.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace prunex::study {
namespace {

constexpr int kTries = 3;

ProcessorSeconds machine_now() {
  std::ifstream file("/proc/stat");
  return processor_seconds({std::istreambuf_iterator<char>(file), {}});
}

double own_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double load_of_a_second() {
  const ProcessorSeconds before = machine_now();
  const double own_before = own_seconds();
  sleep(1);
  const ProcessorSeconds after = machine_now();
  const double all = after.all - before.all, others = after.busy - before.busy - (own_seconds() - own_before);
  return all > 0 ? std::clamp(others / all, 0.0, 1.0) : 0;
}

std::string refusal(const Job& job, double load, double most) {
  return fmt::format(
      "compare: `time_exchanges`: other processes keep {:.0f} % of the processors busy before '{}', wanted at most "
      "{:g} % (`time_load`); once they have ended, the same command times all runs",
      100 * load, job.title(), 100 * most);
}

}  // namespace

ProcessorSeconds processor_seconds(const std::string& stat) {
  constexpr double kHundredth = 0.01;
  std::istringstream text(stat);
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, stolen = 0;
  text >> word >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> stolen;
  if (!text || word != "cpu")
    throw std::runtime_error("compare: /proc/stat: wanted a first line 'cpu' of eight numbers");
  const double busy = user + nice + system + interrupts + soft + stolen;
  return {kHundredth * busy, kHundredth * (busy + idle + waiting)};
}

double load_of_others(double most) {
  double least = 1;
  for (int i = 0; i < kTries && least > most; ++i) least = std::min(least, load_of_a_second());
  return least;
}

bool are_of_one_sitting(const ComparisonRecord& record, const std::vector<Job>& timings) {
  return std::all_of(timings.begin(), timings.end(), [&](const Job& job) {
    return record.state_of(job) == JobState::kDone && record.sitting_of(job) == record.sitting_of(timings.front());
  });
}

SittingOutcome run_sitting(ComparisonRecord& record, const std::vector<Job>& timings, RunnerOptions runner,
                           const nlohmann::ordered_json& head, const SittingOptions& options) {
  if (are_of_one_sitting(record, timings)) return {};
  runner.jobs = 1;
  ComparisonRunner alone(record, std::move(runner), head, timings.size());
  record.sit(options.when);
  for (const auto& job : timings) {
    if (const double load = options.load(options.most_load); load > options.most_load) {
      return {alone.failures(), alone.interrupted_by(), refusal(job, load, options.most_load)};
    }
    record.remove(job);
    alone.run({job});
    if (alone.interrupted_by() != 0) break;
  }
  return {alone.failures(), alone.interrupted_by(), {}};
}

}  // namespace prunex::study
