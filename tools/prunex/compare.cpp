// prunex compare
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <stdexcept>

#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/text/one_line.h"
#include "prunex/train/options.h"
#include "prunex/version.h"
#include "report/report.h"
#include "report/tasks.h"
#include "study/comparison.h"
#include "study/comparison_record.h"
#include "study/comparison_runner.h"
#include "study/sitting.h"
#include "study/verify.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/version.h"

namespace prunex::tools {
namespace {

namespace fs = std::filesystem;
using study::Comparison;
using study::ComparisonRecord;
using study::ComparisonRunner;
using study::Job;
using study::JobState;
using study::NamedRun;
using study::RunnerOptions;
using study::VerifyOptions;

struct CompareCommand {
  std::string file, output, only, again;
  bool dry_run = false, dirty = false;
  std::optional<int64_t> time_exchanges;
  double time_load = study::SittingOptions().most_load;
  RunnerOptions runner;
  VerifyOptions verify;
  std::string line;  ///< that says all this
};

std::string directory_of(const CompareCommand& command) {
  return command.output.empty() ? "runs/" + fs::path(command.file).stem().string() : command.output;
}

bool fits(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

Comparison read(const CompareCommand& command) {
  train::TrainOptions options;
  text::OptionList known = train::describe(options);
  return study::read_comparison(command.file, [&](const std::string& name) {
    const auto* option = known.find(name);
    return option != nullptr && option->in_files ? option : nullptr;
  });
}

/// With the runs of --only.
Comparison picked(const CompareCommand& command, Comparison comparison) {
  if (command.only.empty()) return comparison;
  std::erase_if(comparison.runs, [&](const NamedRun& run) { return !fits(command.only, run.name); });
  if (comparison.runs.empty()) {
    throw std::invalid_argument(fmt::format("`only`: got '{}', which fits no run of {}", command.only, command.file));
  }
  return comparison;
}

void refuse_stale(const ComparisonRecord& record, const std::vector<Job>& jobs) {
  for (const auto& job : jobs) {
    if (!record.is_stale(job)) continue;
    throw std::invalid_argument(fmt::format(
        "compare: {} was made with other options, or is not of this comparison; --again '{}' makes it anew, "
        "another --output keeps it",
        record.path_of(job), job.name));
  }
}

/// Of `all`, those whose files one of `jobs` takes that is not done, and those whose files they take.
std::vector<Job> sources_of(const std::vector<Job>& jobs, const std::vector<Job>& all, const ComparisonRecord& record) {
  std::vector<Job> takers, sources;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(takers),
               [&](const Job& job) { return record.state_of(job) != JobState::kDone; });
  std::set<std::string> known;
  while (!takers.empty()) {
    const Job taker = std::move(takers.back());
    takers.pop_back();
    for (const auto& [key, directory] : taker.taken_from) {
      const auto is_it = [&directory = directory](const Job& job) { return job.directory == directory; };
      const auto source = std::find_if(all.begin(), all.end(), is_it);
      if (source == all.end() || !known.insert(directory).second) continue;
      takers.push_back(*source);
      sources.push_back(*source);
    }
  }
  return sources;
}

/// The first key by which the run takes a file of one of these; null if there is none.
const char* key_from(const NamedRun& run, const std::set<std::string>& names) {
  for (const auto& file : study::kRunFiles) {
    const auto from = run.taken_from.find(file.key);
    if (from != run.taken_from.end() && names.contains(from->second)) return file.key;
  }
  return nullptr;
}

/// The names of --again among `picked`, and of all runs that take files of theirs: refused if results of one would stay
/// because --only leaves it out.
std::set<std::string> names_again(const CompareCommand& command, const Comparison& all, const Comparison& picked,
                                  const ComparisonRecord& record) {
  std::set<std::string> names, within;
  if (command.again.empty()) return names;
  for (const auto& run : picked.runs) {
    within.insert(run.name);
    if (fits(command.again, run.name)) names.insert(run.name);
  }
  for (const auto& directory : record.beside(all)) {
    const std::string name = fs::path(directory).parent_path();
    if (fits(command.again, name)) names.insert(name);
  }
  if (names.empty()) throw std::invalid_argument(fmt::format("`again`: got '{}', which fits no run", command.again));
  for (const auto& run : all.runs) {  // each of them behind those that it takes files of
    const char* key = key_from(run, names);
    if (key == nullptr) continue;
    if (!within.contains(run.name) && record.knows(run.name)) {
      throw std::invalid_argument(
          fmt::format("`again`: '{}' has {} '{}' and would be made anew, too, but `only` leaves it out", run.name, key,
                      run.taken_from.at(key)));
    }
    names.insert(run.name);
  }
  return names;
}

size_t count_jobs(const Comparison& comparison) {
  size_t count = pilots_of(comparison).size();
  for (const auto& run : comparison.runs) count += run.seeds.size();
  return count;
}

std::vector<Job> ready_jobs(const Comparison& comparison, const ComparisonRecord& record) {
  const auto pilots = pilots_of(comparison);
  return jobs_of(comparison, [&](const NamedRun& run) { return record.rate_of(run, pilots); });
}

void print_line(bool done, const std::string& title, const std::string& command) {
  fmt::print("{:<8} {:<32} {}\n", done ? "done" : "to do", title, command);
}

void print_jobs(const std::vector<Job>& jobs, const ComparisonRecord& record, const RunnerOptions& options) {
  for (const auto& job : jobs) {
    std::string command;
    for (const auto& word : words_of(record, job, options, false))
      command += (command.empty() ? "" : " ") + text::shell_word(word);
    print_line(record.state_of(job) == JobState::kDone, job.title(), command);
  }
}

/// What the jobs would be, then the timings and the points, those that wait for a pilot last.
void print_plan(const CompareCommand& command, const Comparison& comparison, const ComparisonRecord& record) {
  const auto pilots = pilots_of(comparison), ready = ready_jobs(comparison, record), first = first_seeds_of(ready);
  print_jobs(pilots, record, command.runner);
  print_jobs(ready, record, command.runner);
  if (command.time_exchanges) {
    const auto timings = timings_of(first, *command.time_exchanges);
    const bool done = are_of_one_sitting(record, timings);
    for (const auto& job : timings) print_line(done, job.title(), "");
  }
  for (const auto& job : first) {
    for (const double mbit : command.verify.mbit) {
      print_line(false, fmt::format("{} at {} Mbit/s", job.title(), mbit), command.verify.script);
    }
  }
  const size_t of_each = (command.time_exchanges ? 1 : 0) + command.verify.mbit.size();
  const size_t later =
      count_jobs(comparison) - pilots.size() - ready.size() + of_each * (comparison.runs.size() - first.size());
  if (later > 0) fmt::print("{} more when their pilots have ended\n", later);
}

/// Runs whose pilots have all failed cannot be started.
size_t note_without_rate(const Comparison& comparison, ComparisonRecord& record) {
  size_t failures = 0;
  const auto pilots = pilots_of(comparison);
  for (const auto& run : comparison.runs) {
    if (run.rates.empty() || record.rate_of(run, pilots)) continue;
    for (const int64_t seed : run.seeds) {
      Job job{
          .name = run.name, .seed = seed, .directory = fmt::format("{}/{}", run.name, seed), .options = run.options};
      ++failures;
      const bool is_done = record.summary_of(job).is_object();
      if (is_done || fs::exists(record.path_of(job))) {
        throw std::invalid_argument(
            fmt::format("compare: {} is {}, at a rate that is none of its `rates` now: wanted those, or --again {}",
                        job.directory, is_done ? "done" : "under way", run.name));
      }
      record.note(job, JobState::kFailed, "no pilot succeeded");
    }
  }
  return failures;
}

/// report.html; returns its summary, empty if there is nothing yet that it could show.
std::string write_report(const CompareCommand& command, const ComparisonRecord& record) {
  const auto directory = directory_of(command);
  report::Findings findings;
  try {
    findings = report::find_runs({directory});
  } catch (const std::invalid_argument&) {
    if (record.has_results()) throw;
    return "";
  }
  const auto page = directory + "/report.html";
  const auto report = report::make_report(findings, origin_of(command.line, page));
  io::write_file_atomically(page, report.html);
  return fmt::format("{}\n{}\n", report.summary, page);
}

/// One of every name that has something left to do, what is cut short afterwards included.
std::vector<Job> jobs_to_check(const CompareCommand& command, const Comparison& comparison,
                               const ComparisonRecord& record) {
  const auto pilots = pilots_of(comparison);
  const auto rate = [&](const NamedRun& run) { return record.rate_of(run, pilots).value_or(run.rates.front()); };
  const auto runs = jobs_of(comparison, rate);
  std::vector<std::vector<Job>> all{pilots, runs};
  if (command.time_exchanges) all.push_back(timings_of(first_seeds_of(runs), *command.time_exchanges));
  if (!command.verify.mbit.empty() && command.verify.exchanges > 0) {
    all.push_back(timings_of(first_seeds_of(runs), command.verify.exchanges));
  }
  std::vector<Job> first;
  for (auto& jobs : all) {
    std::erase_if(jobs, [&](const Job& job) { return record.state_of(job) == JobState::kDone; });
    const auto some = first_seeds_of(jobs);
    first.insert(first.end(), some.begin(), some.end());
  }
  return first;
}

using Outcome = study::SittingOutcome;

/// Those of `comparison` and of the further rates that they ask for, which it then has.
void run_pilots(ComparisonRunner& runner, Comparison& comparison, const ComparisonRecord& record) {
  const std::vector<Job> pilots = pilots_of(comparison);
  std::set<std::string> settled;  // by others, where one has failed
  for (const auto& run : comparison.runs) {
    if (record.rate_of(run, pilots)) settled.insert(run.name);
  }
  std::vector<Job> jobs = pilots;
  std::erase_if(
      jobs, [&](const Job& job) { return record.state_of(job) == JobState::kFailed && settled.contains(job.name); });
  while (!jobs.empty() && runner.interrupted_by() == 0) {
    runner.run(jobs);
    std::set<std::string> run;
    for (const auto& pilot : pilots_of(comparison)) run.insert(pilot.directory);
    comparison = widened(comparison, record);
    jobs = pilots_of(comparison);
    std::erase_if(jobs, [&](const Job& job) { return run.contains(job.directory); });
  }
}

Outcome run_all(const CompareCommand& command, Comparison& comparison, ComparisonRecord& record,
                const nlohmann::ordered_json& head) {
  ComparisonRunner runner(record, command.runner, head, count_jobs(comparison));
  run_pilots(runner, comparison, record);
  const size_t of_pilots = runner.failures();  // no rate to take; without any left, the run itself fails
  size_t failures = 0;
  if (runner.interrupted_by() == 0) {
    failures = note_without_rate(comparison, record);
    refuse_stale(record, ready_jobs(comparison, record));
    runner.run(ready_jobs(comparison, record));
  }
  return {failures + runner.failures() - of_pilots, runner.interrupted_by(), {}};
}

nlohmann::ordered_json head_of(const CompareCommand& command, const Build& build) {
  return {{"file", command.file},   {"command", command.line},        {"version", kVersion},
          {"commit", build.commit}, {"dirty", !build.is_committed()}, {"host", study::describe_host()}};
}

/// All runs, then all timings if they are asked for.
Outcome run_and_time(const CompareCommand& command, Comparison& comparison, ComparisonRecord& record,
                     const nlohmann::ordered_json& head) {
  const Outcome outcome = run_all(command, comparison, record, head);
  if (!command.time_exchanges || outcome.signal != 0) return outcome;
  const auto timings = timings_of(first_seeds_of(ready_jobs(comparison, record)), *command.time_exchanges);
  Outcome timed =
      run_sitting(record, timings, command.runner, head, {.most_load = command.time_load, .when = time_now()});
  timed.failures += outcome.failures;
  return timed;
}

void refuse_idle_folder(const CompareCommand& command, const Comparison& comparison) {
  if (command.runner.data_dir.empty()) return;
  const auto& runs = comparison.runs;
  const auto reads_it = [](const auto& run) {
    return study::reads_data_dir({.name = run.name, .options = run.options});
  };
  if (std::any_of(runs.begin(), runs.end(), reads_it)) return;
  throw std::invalid_argument(
      fmt::format("compare: `data_dir`: got {}, no run of {} reads it", command.runner.data_dir, command.file));
}

void refuse_changed_build(const CompareCommand& command, const Build& build) {
  if (build.is_committed() || command.dirty) return;
  throw std::invalid_argument(fmt::format(
      "compare: this build is of {}: results come from a commit that others can build; `dirty` allows it",
      build.commit == "unknown" ? "no known commit" : "files that were changed since commit " + build.commit));
}

/// Results that are of something else, and what no run could do.
void refuse_before_start(const CompareCommand& command, const Comparison& all, const Comparison& comparison,
                         const ComparisonRecord& record) {
  const auto ready = ready_jobs(comparison, record);
  refuse_stale(record, pilots_of(comparison));
  refuse_stale(record, ready);
  refuse_stale(record, sources_of(ready, ready_jobs(widened(all, record), record), record));
  for (const auto& job : jobs_to_check(command, comparison, record)) {
    if (command.dry_run) {
      check_options_of(record, job);
    } else {
      check_job(record, job, command.runner);
    }
  }
}

int conclude(const CompareCommand& command, const Comparison& comparison, const ComparisonRecord& record,
             const Outcome& outcome) {
  fmt::print("{}", write_report(command, record));
  if (outcome.signal != 0) {
    say(fmt::format("prunex: compare: interrupted by signal {}; the same command goes on from here\n", outcome.signal));
    return 128 + outcome.signal;
  }
  if (!command.verify.mbit.empty() && record.has_results()) {
    const size_t failed =
        verify(record, first_seeds_of(ready_jobs(comparison, record)), command.verify, command.runner);
    write_report(command, record);
    if (failed > 0) {
      throw std::runtime_error(
          fmt::format("compare: `verify`: {} failed, see above", report::count_of(failed, "point")));
    }
  }
  if (!outcome.busy.empty()) throw std::runtime_error(outcome.busy);
  if (outcome.failures > 0) {
    throw std::runtime_error(fmt::format("compare: {} failed; see {}/compare.json",
                                         report::count_of(outcome.failures, "run"), directory_of(command)));
  }
  return 0;
}

void warn_of_others(const CompareCommand& command, const Comparison& all, const ComparisonRecord& record) {
  const auto others = record.beside(all);
  if (others.empty()) return;
  constexpr size_t kMost = 3;
  const std::vector<std::string> some(others.begin(), others.begin() + std::min(kMost, others.size()));
  say(fmt::format("prunex: warning: compare: {} in {} that {} does not list: {}{}; the report has them, too\n",
                  report::count_of(others.size(), "run"), directory_of(command), command.file, fmt::join(some, ", "),
                  others.size() > kMost ? " …" : ""));
}

int run_compare(const CompareCommand& command) {
  const Comparison all = read(command);
  refuse_idle_folder(command, all);
  Comparison comparison = picked(command, all);
  const Build build = this_build();
  if (!command.dry_run) refuse_changed_build(command, build);
  ComparisonRecord record(directory_of(command), {{"processor", study::describe_host().value("processor", "")},
                                                  {"commit", build.commit},
                                                  {"versions", {{"prunex", kVersion}, {"libtorch", build.torch}}}});
  const auto again = names_again(command, all, comparison, record);
  for (const auto& name : again) record.forget(name);
  comparison = widened(comparison, record);
  if (!command.verify.mbit.empty()) check_cluster(command.verify);
  if (!command.dry_run) record.claim();
  refuse_before_start(command, all, comparison, record);
  if (command.dry_run) {
    print_plan(command, comparison, record);
    return 0;
  }
  const auto head = head_of(command, build);
  record.remove_forgotten(head);
  study::forget_points(record.directory(), again);
  warn_of_others(command, all, record);
  const Outcome outcome = run_and_time(command, comparison, record, head);
  return conclude(command, comparison, record, outcome);
}

text::OptionList describe(CompareCommand& command) {
  using text::number;
  using text::text_value;
  auto& verify = command.verify;
  text::OptionList list;
  list.add("FILE", text_value(command.file), "FILE.toml with the runs: docs/report.md").must().positional();
  list.add("output", text_value(command.output), "results; default: runs/ and the name of the file");
  list.add("only", text_value(command.only), "runs whose name fits, such as 'hsadmm*'");
  list.add("again", text_value(command.again),
           "forget what was done of runs whose name fits and of those that take files of theirs, and make them anew");
  list.add("jobs", number(command.runner.jobs, text::between(1, train::kMostThreads)), "runs at the same time");
  list.add("data-dir", text_value(command.runner.data_dir), "`data_dir` of every run that reads one");
  list.add("dry-run", text::flag(command.dry_run), "only print the plan");
  list.add("dirty", text::flag(command.dirty),
           "run though the build has changes that are not committed; the record says so");
  list.add("time-exchanges", number(command.time_exchanges, text::between(1, 1e9)),
           "then time so many exchanges of every run, one run after the other, for computed seconds; refuses a busy "
           "machine");
  const text::Condition times{"`time_exchanges`", [&command] {
                                return command.time_exchanges ? "" : "needs `time_exchanges`, whose timings it is for";
                              }};
  list.add("time-load", number(command.time_load, text::between(0, 1)),
           "share of all processors that other processes may keep busy when a timing begins", {times});
  list.add("verify", text::numbers(verify.mbit, "MBIT,MBIT", text::above_zero()),
           "then run the first seeds again on the emulated cluster, at these Mbit/s (root): 25,100");
  const text::Condition verifies{
      "`verify`", [&verify] { return verify.mbit.empty() ? "needs `verify`, which says at which Mbit/s" : ""; }};
  list.add("verify-exchanges", number(verify.exchanges, text::between(0, 1e9)),
           "only so many exchanges of each; 0 = all", {verifies});
  list.add("cluster", text_value(verify.script), "the script of the emulated cluster", {verifies});
  list.add("quiet", text::flag(command.runner.quiet), "no progress, only results");
  return list;
}

}  // namespace

void add_compare(CLI::App& app, int& status) {
  auto command = std::make_shared<CompareCommand>();
  add_command(
      app,
      {.name = "compare",
       .help = "a matrix of runs and seeds from one file; goes on where it was stopped",
       .options = describe(*command),
       .run = [command] { return run_compare(*command); },
       .complete = [command](text::OptionList& list) { command->line = line_of("compare", {command->file}, list); }},
      status);
}

}  // namespace prunex::tools
