#include "study/comparison_runner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>

#include "launch/error_lines.h"
#include "launch/launch.h"
#include "launch/process.h"
#include "launch/stop_signals.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/stopwatch.h"
#include "prunex/text/json.h"
#include "prunex/text/settings.h"
#include "prunex/train/options.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/run/progress.h"

namespace prunex::study {
namespace {

namespace fs = std::filesystem;

void add_data_dir(std::vector<std::string>& words, const Job& job, const RunnerOptions& options) {
  if (!options.data_dir.empty() && reads_data_dir(job)) words.insert(words.end(), {"--data-dir", options.data_dir});
}

/// Whether the other run of `file.key` has ended and left it.
bool is_there(const ComparisonRecord& record, const Job& job, const RunFile& file) {
  if (record.is_forgotten(fs::path(job.taken_from.at(file.key)).parent_path())) return false;
  const fs::path path = path_for(job, file, record.directory());
  return fs::exists(path.parent_path() / "summary.json") && fs::exists(path);
}

/// Whether the options go with one another and the files of other runs, be these there or not.
void check_options(const ComparisonRecord& record, const Job& job) {
  train::TrainOptions options;
  text::OptionList known = train::describe(options);
  set_options(known, job.options);
  for (const RunFile& file : kRunFiles) {
    if (!job.taken_from.contains(file.key)) continue;
    known.find(file.option)->set(path_for(job, file, record.directory()));
  }
  train::apply_preset(known, options);
  known.check();
  known.refuse_idle();
  train::validate(options);
}

/// With what is there of other runs; without the rest, and what has no effect without it.
OptionValues options_so_far(const ComparisonRecord& record, const Job& job) {
  OptionValues options = job.options;
  for (const RunFile& file : kRunFiles) {
    if (!job.taken_from.contains(file.key)) continue;
    if (is_there(record, job, file)) {
      options[file.option] = text::toml_of(path_for(job, file, record.directory()));
    } else if (std::string_view(file.option) == "model") {
      for (const auto& [name, value] : job.stand_in) options[name] = value;
    } else if (std::string_view(file.option) == "teacher") {
      for (const char* of_teacher : {"teacher-share", "teacher-temperature"}) options.erase(of_teacher);
    }
  }
  const auto is_file = [&](const char* name) {
    return options.contains(name) && text::word_of(options.at(name)).ends_with(".pt2");
  };
  if (!is_file("model") && !is_file("teacher")) options.erase("max-model-size");
  return options;
}

std::string error_of_options(const ComparisonRecord& record, const Job& job) {
  try {
    check_options(record, job);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string error_of_check(const ComparisonRecord& record, const Job& job, const RunnerOptions& options) {
  const std::string refused = job.taken_from.empty() ? "" : error_of_options(record, job);
  if (!refused.empty()) return refused;
  const auto so_far = job.taken_from.empty() ? job.options : options_so_far(record, job);
  std::vector<std::string> words{"prunex", "train", "--check", "--quiet"};
  for (const auto& [name, value] : so_far) words.push_back(fmt::format("--{}={}", name, text::word_of(value)));
  add_data_dir(words, job, options);
  return launch::error_of_run({.words = words});
}

/// Nothing if there is no error.
void refuse_for(const Job& job, const std::string& error) {
  if (error.empty()) return;
  const char* kind = job.kind == JobKind::kTiming ? "timing of run" : "run";
  throw std::invalid_argument(fmt::format("compare: {} '{}': {}", kind, job.name, error));
}

using Log = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// A job that is running.
struct Active {
  const Job& job;
  launch::Process process;
  Log log;
  RunProgress progress = {};
  std::string last_line = {};  // that is no progress
};

}  // namespace

std::optional<RunProgress> progress_in(const std::string& line) {
  if (!line.starts_with('{') || !text::is_json(line)) return std::nullopt;
  const auto json = text::parse_json(line);
  if (!json.is_object() || json.value("event", "") != "exchange") return std::nullopt;
  const auto done = json.value("exchange", int64_t{0}), all = json.value("exchanges", int64_t{0});
  if (all <= 0) return std::nullopt;
  return RunProgress{static_cast<double>(done) / static_cast<double>(all),
                     fmt::format("exchange {}/{}  loss {:.4f}", done, all, json.value("loss", 0.0))};
}

bool reads_data_dir(const Job& job) {
  train::TrainOptions options;
  text::OptionList known = train::describe(options);
  if (job.options.contains("dataset")) options.data.dataset = text::word_of(job.options.at("dataset"));
  return known.find("data-dir")->why_idle().empty();
}

std::vector<std::string> words_of(const ComparisonRecord& record, const Job& job, const RunnerOptions& options,
                                  bool resume) {
  const std::string path = record.path_of(job);
  std::vector<std::string> words{"prunex", "train", "--resume", path, "--log", "json"};
  if (!resume) words = {"prunex", "train", "--config", path + ".toml", "--run-dir", path, "--log", "json"};
  add_data_dir(words, job, options);
  return words;
}

void check_options_of(const ComparisonRecord& record, const Job& job) {
  refuse_for(job, error_of_options(record, job));
}

void check_job(const ComparisonRecord& record, const Job& job, const RunnerOptions& options) {
  refuse_for(job, error_of_check(record, job, options));
}

class ComparisonRunner::State {
 public:
  State(ComparisonRecord& record, RunnerOptions options, nlohmann::ordered_json head, size_t total)
      : record_(record), options_(std::move(options)), head_(std::move(head)), total_(total) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void run(const std::vector<Job>& jobs) {
    for (const auto& job : jobs) {
      if (record_.state_of(job) == JobState::kDone) {
        record_.note(job, JobState::kDone);
        ++done_;
      } else {
        waiting_.push_back(&job);
      }
    }
    record_.write(head_);
    while (!active_.empty() || (!waiting_.empty() && interrupted_by_ == 0)) {
      while (interrupted_by_ == 0 && active_.size() < static_cast<size_t>(options_.jobs)) {
        const Job* next = take_ready();
        if (next == nullptr) break;
        start(*next);
      }
      if (active_.empty()) break;
      wait_for_event();
      handle_signals();
      std::erase_if(active_, [&](Active& active) { return serve(active); });
    }
    if (interrupted_by_ != 0) return;
    for (const Job* job : waiting_) {
      const RunFile& file = *missing_file_of(*job);
      fail(*job, fmt::format("{} has no {} for {}", job->taken_from.at(file.key), file.file, file.key));
    }
    waiting_.clear();
    record_.write(head_);
  }

  int interrupted_by_ = 0;
  std::chrono::steady_clock::time_point interrupted_at_;
  size_t failures_ = 0;

 private:
  /// What another run is yet to leave; null if all is there.
  const RunFile* missing_file_of(const Job& job) const {
    const auto is_missing = [&](const RunFile& file) {
      return job.taken_from.contains(file.key) && !is_there(record_, job, file);
    };
    const auto* missing = std::find_if(std::begin(kRunFiles), std::end(kRunFiles), is_missing);
    return missing == std::end(kRunFiles) ? nullptr : missing;
  }

  /// The first waiting job that lacks nothing of another; null if there is none.
  const Job* take_ready() {
    const auto is_ready = [&](const Job* job) { return missing_file_of(*job) == nullptr; };
    const auto ready = std::find_if(waiting_.begin(), waiting_.end(), is_ready);
    if (ready == waiting_.end()) return nullptr;
    const Job* job = *ready;
    waiting_.erase(ready);
    return job;
  }

  /// Goes on from a checkpoint if there is one, after a failure too; what else an unfinished run left is removed.
  void start(const Job& job) {
    const std::string path = record_.path_of(job);
    fs::create_directories(fs::path(path).parent_path());
    const bool resume = record_.has_checkpoint(job);
    if (!resume) remove_run(path);
    io::write_file_atomically(path + ".toml", config_of(job, record_.directory()));
    record_.note(job, JobState::kWaiting);
    record_.write(head_);
    launch::Process process(job.title(), {.words = words_of(record_, job, options_, resume)});
    Log log(std::fopen((path + ".log").c_str(), resume ? "ae" : "we"), std::fclose);
    if (log == nullptr) throw std::runtime_error(fmt::format("compare: {}.log: {}", path, std::strerror(errno)));
    active_.push_back({job, std::move(process), std::move(log)});
    if (!on_terminal_) say(fmt::format("{} {}", job.title(), resume ? "goes on" : "starts"));
  }

  void wait_for_event() {
    std::vector<pollfd> descriptors{{signals_.descriptor(), POLLIN, 0}};
    for (const auto& active : active_) descriptors.push_back({active.process.descriptor(), POLLIN, 0});
    poll(descriptors.data(), descriptors.size(), 500);
  }

  void handle_signals() {
    while (const auto info = signals_.next()) {
      if (info->ssi_signo == SIGCHLD) continue;
      const auto now = std::chrono::steady_clock::now();
      const bool again = interrupted_by_ != 0;
      if (again && now - interrupted_at_ < launch::kOneSignal) continue;
      for (const auto& active : active_) active.process.signal(again ? SIGKILL : SIGTERM);
      interrupted_by_ = static_cast<int>(info->ssi_signo);
      interrupted_at_ = now;
    }
  }

  /// True if the job has ended.
  bool serve(Active& active) {
    const bool ended = active.process.ended();
    for (const auto& line : active.process.read_lines()) {
      std::fputs((line + "\n").c_str(), active.log.get());
      if (!line.starts_with('{')) active.last_line = line;
      if (auto progress = progress_in(line)) active.progress = std::move(*progress);
    }
    if (!ended) {
      show_progress();
      return false;
    }
    active.log.reset();
    conclude(active);
    return true;
  }

  void conclude(const Active& active) {
    const int status = active.process.status();
    if (status == 0 && record_.summary_of(active.job).is_object()) {
      ++done_;
      ++done_here_;
      record_.note(active.job, JobState::kDone);
      say(fmt::format("{}: accuracy {:.2f} %", active.job.title(),
                      100 * record_.summary_of(active.job).value("accuracy", 0.0)));
    } else if (active.last_line.find(train::kNoCheckpoint) !=
               std::string::npos) {  // interrupted before the first: anew
      fs::remove_all(record_.path_of(active.job));
      waiting_.push_front(&active.job);
    } else if (interrupted_by_ == 0) {
      fail(active.job, WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                           : launch::message_of(active.last_line));
    }
    record_.write(head_);
  }

  void fail(const Job& job, const std::string& why) {
    ++failures_;
    record_.note(job, JobState::kFailed, why);
    say(fmt::format("{} failed: {}", job.title(), why));
  }

  void say(const std::string& what) {
    if (options_.quiet) return;
    prunex::say(fmt::format("{}[{}/{}] {}\n", on_terminal_ ? "\r\033[K" : "", done_, std::max(total_, done_), what));
  }

  void show_progress() {
    if (options_.quiet || !on_terminal_) return;
    double shares = 0;
    for (const auto& active : active_) shares += active.progress.share;
    const double here = static_cast<double>(done_here_) + shares;
    const double left = static_cast<double>(total_ - std::min(total_, done_ + failures_)) - shares;
    const std::string time =
        here > 0.02 ? train::clock_time((Stopwatch::now() - started_) * left / here) + " left" : "";
    prunex::say(fmt::format("\r\033[K[{}/{}] {}  {}  {}", done_, std::max(total_, done_), active_.front().job.title(),
                            active_.front().progress.text, time));
  }

  ComparisonRecord& record_;
  const RunnerOptions options_;
  const nlohmann::ordered_json head_;
  const size_t total_;
  const bool on_terminal_ = isatty(STDERR_FILENO) != 0;
  const launch::BlockedSignals signals_{launch::and_stops({SIGCHLD})};
  const double started_ = Stopwatch::now();
  std::deque<const Job*> waiting_;
  std::list<Active> active_;
  size_t done_ = 0, done_here_ = 0;
};

ComparisonRunner::ComparisonRunner(ComparisonRecord& record, RunnerOptions options, nlohmann::ordered_json head,
                                   size_t total)
    : state_(std::make_unique<State>(record, std::move(options), std::move(head), total)) {}
ComparisonRunner::~ComparisonRunner() = default;

void ComparisonRunner::run(const std::vector<Job>& jobs) {
  state_->run(jobs);
}
int ComparisonRunner::interrupted_by() const {
  return state_->interrupted_by_;
}
size_t ComparisonRunner::failures() const {
  return state_->failures_;
}

}  // namespace prunex::study
