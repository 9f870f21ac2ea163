#include "study/comparison_record.h"

#include <ATen/Version.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "prunex/io/files.h"
#include "prunex/text/json.h"
#include "prunex/text/read_file.h"
#include "prunex/text/settings.h"
#include "prunex/train/options.h"
#include "report/recorded_run.h"
#include "report/report.h"
#include "report/run.h"

namespace prunex::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const char* name_of(JobState state) {
  switch (state) {
    case JobState::kDone:
      return "done";
    case JobState::kFailed:
      return "failed";
    case JobState::kWaiting:
      break;
  }
  return "waiting";
}

/// Null if the file is not there or no JSON.
ordered_json read_json(const std::string& path) {
  constexpr size_t kMost = 64'000'000;
  try {
    return text::parse_ordered_json(text::read_file(path, kMost));
  } catch (const std::invalid_argument&) {
    return {};
  }
}

ordered_json read_record(const std::string& path) {
  try {
    return text::parse_ordered_json(text::read_file(path, report::kLargestComparison));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("compare: {}: {}", path, error.what()));
  }
}

/// Null if the run is not finished.
ordered_json read_summary(const std::string& directory) {
  ordered_json summary = read_json(directory + "/summary.json");
  if (!report::is_summary(summary)) return {};
  const report::Messages messages = report::count_messages(summary);
  summary.erase("traffic");
  summary.erase("not_removed");
  summary["messages"] = messages.between_nodes;
  summary["flat_messages"] = messages.among_all;
  if (messages.direct) summary["direct_messages"] = *messages.direct;
  if (messages.flat_direct) summary["flat_direct_messages"] = *messages.flat_direct;
  if (messages.gathered_bytes) summary["gathered_bytes"] = *messages.gathered_bytes;
  return summary;
}

/// The lists of compare.json.
constexpr std::array<std::pair<JobKind, const char*>, 3> kLists{
    {{JobKind::kPilot, "pilots"}, {JobKind::kTiming, "timings"}, {JobKind::kRun, "runs"}}};

/// What the figures need.
void add_curves(ordered_json& entry, const report::Run& run) {
  entry["exchanges"] = record_of(run.exchanges);
  for (const auto& [group, size, kept] : run.groups) {
    entry["groups"].push_back({{"name", group}, {"size", size}, {"kept", kept}});
  }
}

bool is_entry(const ordered_json& entry) {
  if (!entry.is_object() || !entry.contains("options")) return false;
  if (entry.contains("summary") && !entry["summary"].is_object()) return false;
  const auto is_word = [&](const char* key) { return entry.contains(key) && entry[key].is_string(); };
  return is_word("name") && is_word("directory") && is_word("state");
}

ordered_json options_json(const Job& job) {
  ordered_json options = ordered_json::object();
  for (const auto& [name, value] : job.options) options[name] = value;
  for (const auto& [key, run] : job.taken_from) options[key] = fs::path(run).parent_path().string();
  return options;
}

/// What the job's preset sets of the options that it does not say.
ordered_json preset_json(const Job& job) {
  train::TrainOptions options;
  text::OptionList list = train::describe(options);
  OptionValues said = job.options;
  for (const char* images : {"dataset", "test"}) said.erase(images);  // no preset's business, and not always there
  set_options(list, said);
  list.find("preset")->is_kept = true;
  train::apply_preset(list, options);
  ordered_json set = ordered_json::object();
  for (const auto& option : list.all()) {
    const std::string value = option.value.write ? option.value.write() : "";
    if (!option.given && value != option.usual) set[option.name] = text::toml_of(value);
  }
  return set;
}

/// Whether the entry's run was asked for as the job is, by options and by what its preset set.
bool is_of(const ordered_json& entry, const Job& job) {
  if (entry.at("options") != options_json(job)) return false;
  return !entry.contains("preset_options") || entry["preset_options"] == preset_json(job);
}

}  // namespace

ComparisonRecord::ComparisonRecord(std::string directory, ordered_json made_by)
    : directory_(std::move(directory)), made_by_(std::move(made_by)) {
  const auto path = directory_ + "/compare.json";
  if (!fs::exists(path)) return;
  const ordered_json record = read_record(path);
  const auto refuse = [&path](bool condition) {
    if (condition) throw std::invalid_argument(fmt::format("compare: {} is not what a comparison wrote", path));
  };
  refuse(!record.is_object() || !record.contains("runs") || !record.contains("pilots"));
  for (const auto& [kind, list] : kLists) {
    if (!record.contains(list)) continue;
    refuse(!record[list].is_array());
    for (const auto& entry : record[list]) {
      refuse(!is_entry(entry));
      entries_[kind].push_back(entry);
    }
  }
}

void ComparisonRecord::claim() {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw std::runtime_error(fmt::format("`output`: cannot create {}: {}", directory_, error.message()));
  lock_.emplace(directory_, "prunex compare");
}

bool ComparisonRecord::knows(const std::string& name) const {
  const auto has_name = [&](const ordered_json& entry) { return entry.value("name", "") == name; };
  return fs::exists(fs::path(directory_) / name) ||
         std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& list) { return std::any_of(list.second.begin(), list.second.end(), has_name); });
}

void ComparisonRecord::forget(const std::string& name) {
  for (auto& [kind, entries] : entries_) {
    std::erase_if(entries, [&](const ordered_json& entry) { return entry.value("name", "") == name; });
  }
  forgotten_.insert(name);
}

void remove_run(const std::string& path) {
  if (!fs::is_directory(path)) return;
  const io::DirectoryLock alone(path, "prunex train");
  fs::remove_all(path);
}

void ComparisonRecord::remove_forgotten(const ordered_json& head) {
  if (forgotten_.empty()) return;
  for (const auto& name : forgotten_) {
    const fs::path of_name = fs::path(directory_) / name;
    if (!fs::is_directory(of_name)) continue;
    for (const auto& seed : fs::directory_iterator(of_name)) {
      if (seed.is_directory()) remove_run(seed.path());
    }
    fs::remove_all(of_name);
  }
  forgotten_.clear();
  write(head);
}

void ComparisonRecord::remove(const Job& job) {
  std::erase_if(entries_[job.kind],
                [&](const ordered_json& entry) { return entry.value("directory", "") == job.directory; });
  remove_run(path_of(job));
}

std::string ComparisonRecord::sitting_of(const Job& job) const {
  const auto* entry = find(job);
  return entry == nullptr ? "" : entry->value("sitting", "");
}

const ordered_json* ComparisonRecord::find(const Job& job) const {
  const auto entries = entries_.find(job.kind);
  if (entries == entries_.end()) return nullptr;
  for (const auto& entry : entries->second) {
    if (entry.value("directory", "") == job.directory) return &entry;
  }
  return nullptr;
}

JobState ComparisonRecord::state_of(const Job& job) const {
  const auto* entry = find(job);
  if (entry == nullptr || !is_of(*entry, job)) return JobState::kWaiting;
  if (entry->value("state", "") == "done" || read_summary(path_of(job)).is_object()) return JobState::kDone;
  return entry->value("state", "") == "failed" ? JobState::kFailed : JobState::kWaiting;
}

bool ComparisonRecord::is_stale(const Job& job) const {
  const auto* entry = find(job);
  if (entry == nullptr) return !is_forgotten(job.name) && fs::exists(path_of(job));
  return !is_of(*entry, job) && (entry->value("state", "") == "done" || fs::exists(path_of(job)));
}

ordered_json ComparisonRecord::summary_of(const Job& job) const {
  const ordered_json summary = read_summary(path_of(job));
  if (summary.is_object()) return summary;
  const auto* entry = find(job);
  return entry != nullptr && entry->contains("summary") ? entry->at("summary") : ordered_json();
}

bool ComparisonRecord::has_checkpoint(const Job& job) const {
  const fs::path checkpoints = fs::path(path_of(job)) / "checkpoint";
  return fs::is_directory(checkpoints) && !fs::is_empty(checkpoints);
}

ordered_json ComparisonRecord::maker_of(const Job& job, JobState state) const {
  const auto* known = find(job);
  if (known == nullptr || !made_by_.is_object()) return made_by_;
  if (state == JobState::kWaiting) {
    const std::string now = made_by_.value("commit", ""), before = known->value("commit", "");
    ordered_json maker = made_by_;
    if (has_checkpoint(job) && !before.empty()) {
      maker["commit"] = before.ends_with(now) ? before : before + ", then " + now;
    }
    return maker;
  }
  ordered_json maker;
  for (const auto& [key, value] : made_by_.items()) {
    if (known->contains(key)) maker[key] = known->at(key);
  }
  return maker.size() == made_by_.size() ? maker : made_by_;
}

void ComparisonRecord::note(const Job& job, JobState state, const std::string& what) {
  if (const auto* known = find(job); state == JobState::kDone && known != nullptr && known->at("state") == "done")
    return;
  ordered_json entry{{"name", job.name}};
  if (job.kind == JobKind::kPilot) {
    entry["rate"] = job.rate;
  } else {
    entry["seed"] = job.seed;
  }
  entry["directory"] = job.directory;
  entry["state"] = name_of(state);
  if (!what.empty()) entry["error"] = what;
  entry["options"] = options_json(job);
  if (job.options.contains("preset")) entry["preset_options"] = preset_json(job);
  if (const auto maker = maker_of(job, state); maker.is_object()) entry.update(maker);
  if (job.kind == JobKind::kTiming && !sitting_.empty()) entry["sitting"] = sitting_;
  if (state == JobState::kDone) {
    entry["summary"] = summary_of(job);
    if (job.kind != JobKind::kPilot) add_curves(entry, report::read_run(path_of(job)));
  }
  auto& entries = entries_[job.kind];
  const auto known = std::find_if(entries.begin(), entries.end(), [&](const ordered_json& other) {
    return other.value("directory", "") == job.directory;
  });
  if (known == entries.end()) {
    entries.push_back(std::move(entry));
  } else {
    *known = std::move(entry);
  }
}

bool ComparisonRecord::has_results() const {
  const auto runs = entries_.find(JobKind::kRun);
  const auto is_done = [](const ordered_json& entry) { return entry.value("state", "") == "done"; };
  return runs != entries_.end() && std::any_of(runs->second.begin(), runs->second.end(), is_done);
}

std::vector<std::string> ComparisonRecord::beside(const Comparison& comparison) const {
  std::set<std::string> wanted;
  const auto any_rate = [](const NamedRun&) { return 0.0; };
  for (const auto& job : jobs_of(comparison, any_rate)) wanted.insert(job.directory);
  std::vector<std::string> others;
  const auto runs = entries_.find(JobKind::kRun);
  if (runs == entries_.end()) return others;
  for (const auto& entry : runs->second) {
    if (const std::string directory = entry.value("directory", ""); !wanted.contains(directory))
      others.push_back(directory);
  }
  return others;
}

std::optional<double> ComparisonRecord::rate_of(const NamedRun& run, const std::vector<Job>& pilots) const {
  std::optional<double> best;
  double most = -1;
  for (const double rate : run.rates) {
    double sum = 0;
    int count = 0;
    bool failed = false;
    for (const auto& pilot : pilots) {
      if (pilot.name != run.name || pilot.rate != rate) continue;
      const JobState state = state_of(pilot);
      if (state == JobState::kWaiting) return std::nullopt;
      failed = failed || state == JobState::kFailed;
      if (state == JobState::kDone) sum += summary_of(pilot).value("validation_accuracy", -1.0);
      ++count;
    }
    if (failed || count == 0 || sum / count <= most) continue;
    most = sum / count;
    best = rate;
  }
  return best;
}

void ComparisonRecord::write(const ordered_json& head) const {
  std::string text = "{\n";
  for (const auto& [key, value] : head.items())
    text += fmt::format("{}: {},\n", text::json_text(ordered_json(key)), text::json_text(value));
  for (const auto& [kind, list] : kLists) {
    text += fmt::format("\"{}\": [", list);
    const auto entries = entries_.find(kind);
    const char* separator = "\n";
    for (size_t i = 0; entries != entries_.end() && i < entries->second.size(); ++i) {
      text += separator + text::json_text(entries->second[i]);
      separator = ",\n";
    }
    text += kind == kLists.back().first ? "]\n}\n" : "],\n";
  }
  io::write_file_atomically(directory_ + "/compare.json", text);
}

ordered_json describe_host() {
  ordered_json host{{"cores", std::thread::hardware_concurrency()},
                    {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)}};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const std::string name = line.substr(std::min(line.size(), line.find(':') + 2));
      host["processor"] = name + ", " + at::get_cpu_capability();  // which instructions LibTorch uses there
      break;
    }
  }
  return host;
}

Comparison widened(Comparison comparison, const ComparisonRecord& record) {
  for (auto& run : comparison.runs) {
    while (run.widens && run.rates.size() < kMostRates) {
      const auto best = record.rate_of(run, pilots_of(comparison));
      const auto [low, high] = std::minmax_element(run.rates.begin(), run.rates.end());
      if (best != *low && best != *high) break;
      run.rates.push_back(best == *high ? 2 * *high : *low / 2);  // behind those tried: of equal ones the first is best
    }
  }
  return comparison;
}

}  // namespace prunex::study
