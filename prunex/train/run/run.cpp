#include "prunex/train/run/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/stopwatch.h"
#include "prunex/train/elastic/elastic.h"

namespace prunex::train {
namespace {

std::string what_happened(const comm::Change& change) {
  const auto nodes = [](const std::vector<int>& who) {
    return fmt::format("node{} {}", who.size() == 1 ? "" : "s", fmt::join(who, ", "));
  };
  std::string text = change.lost.empty() ? "" : "lost " + nodes(change.lost);
  if (!change.joined.empty()) text += (text.empty() ? "" : ", ") + nodes(change.joined) + " joined";
  return text.empty() ? "the nodes met again" : text;
}

}  // namespace

Run::Run(const TrainOptions& options, const std::string& config, comm::Hierarchy& ranks, StopRequest* stop)
    : options_(options), config_(config), ranks_(ranks) {
  open_directory(config);
  safe_.emplace(options_, directory_, config, ranks_, stop);
  if (options_.resume.empty()) expect_no_other_run();
  comm::write_hang_reports_to(ranks_, directory_);
}

Run::Run(const TrainOptions& options, const std::string& config, comm::Hierarchy& ranks, StopRequest* stop,
         std::string directory)
    : options_(options), config_(config), ranks_(ranks), directory_(std::move(directory)) {
  comm::write_hang_reports_to(ranks_, directory_);
  safe_.emplace(options_, directory_, config, ranks_, stop);
}

/// Rank 0 chooses and makes it; the others need its name for their checkpoints.
void Run::open_directory(const std::string& config) {
  directory_ = options_.resume;
  const bool resumes = !directory_.empty();
  if (writes() && !resumes) {
    directory_ = options_.run_dir;
    if (directory_.empty()) {
      directory_ = io::create_next_run_directory("runs", {options_.data.dataset, options_.model, options_.strategy});
    } else {
      io::create_run_directory(directory_);
    }
  }
  if (writes()) {
    lock_.emplace(directory_, "prunex train");
    if (!resumes) io::create_run_directory(directory_);  // nobody else has used it meanwhile
    io::remove_temporaries(directory_);
    if (!resumes) io::write_file_atomically(directory_ + "/config.toml", config);
  }
  if (!resumes) directory_ = comm::broadcast_text(*ranks_.world, directory_);
}

/// On no node's own disk: checkpoints come there, under the name that rank 0 chose.
void Run::expect_no_other_run() {
  std::string problem;
  if (ranks_.layout.local_rank() == 0 && !writes() && safe_->is_taken()) {
    problem = fmt::format("`run_dir` {}: is not empty on node {}: a new or empty directory is wanted", directory_,
                          ranks_.layout.node());
  }
  for (const auto& said : comm::gather_texts(*ranks_.world, problem)) {
    if (!said.empty()) throw std::invalid_argument(said);
  }
}

void Run::begin(const Summary& summary, int64_t exchanges) {
  // Who joins, and who resumes on another machine, takes what the run has from here on.
  const bool has_changed = !options_.resume.empty() && options_.elastic && !config_.empty();
  if (has_changed && ranks_.layout.local_rank() == 0) io::write_file_atomically(directory_ + "/config.toml", config_);
  if (writes()) {
    if (!options_.resume.empty()) {
      keep_exchanges(directory_, summary.exchanges, summary.steps);
      keep_changes(directory_, summary.nodes_lost, summary.nodes_joined);
    }
    open_record(summary, exchanges);
  }
  if (options_.trace && options_.join.empty()) trace_.emplace(ranks_);
  if (options_.trace && !options_.join.empty()) trace_.emplace(ranks_, summary.wall_seconds);
  safe_->begin();
}

/// For who may join: for this user's eyes alone.
void Run::publish(const comm::RunDoors& doors) {
  if (!writes()) return;
  bool said = false;
  attempt([&] { io::write_file_atomically(directory_ + "/" + kDoorsFile, doors.text(), 0600); }, said);
}

void Run::open_record(const Summary& summary, int64_t exchanges) {
  metrics_file_ = std::make_unique<MetricsFile>(directory_, options_.tensorboard);
  progress_ = std::make_unique<Progress>(summary, exchanges, options_.log, options_.quiet);
  progress_->start(directory_);
}

/// Who had it is gone, or stands still and is waited for no longer.
void Run::take_over_lock() {
  try {
    if (!lock_) lock_.emplace(directory_, "prunex train");
  } catch (const std::runtime_error&) {
  }
}

/// Who wrote it before may have been lost before the last line.
void Run::take_over_record(const Summary& summary, int64_t exchanges) {
  const bool again = last_ && last_->exchange.index == summary.exchanges;
  const int64_t dropped = again ? 1 : 0;
  bool said = false;
  attempt([&] { keep_exchanges(directory_, summary.exchanges - dropped, summary.steps - dropped); }, said);
  open_record(summary, exchanges);
  if (again) metrics_file_->append(*last_);
}

void Run::go_on(const comm::Change& change, int64_t exchange, const Summary& summary, int64_t exchanges) {
  comm::write_hang_reports_to(ranks_, directory_);
  if (!writes()) return;
  if (is_done(directory_)) throw comm::LeftBehind("[train] the others have ended the run without this node");
  if (!metrics_file_) {
    if (!std::filesystem::exists(directory_)) {
      io::create_run_directory(directory_);
      io::write_file_atomically(directory_ + "/config.toml", config_);
    }
    take_over_lock();
    take_over_record(summary, exchanges);
  }
  metrics_file_->append(change, exchange);
  end_progress();
  say(fmt::format("prunex: {} after exchange {}; {} go{} on after {:.2f} s\n", what_happened(change), exchange,
                  change.roster.nodes.size(), change.roster.nodes.size() == 1 ? "es" : "", change.seconds));
}

void Run::report(const Metrics& metrics, double seconds_so_far, double samples_per_second) {
  if (options_.elastic) last_ = metrics;
  if (!writes()) return;
  metrics_file_->append(metrics);
  progress_->report(metrics, seconds_so_far, samples_per_second);
}

void Run::heed(const Wishes& wishes, const std::function<Checkpoint()>& snapshot) {
  if (!wishes.any()) return;
  if (wishes.ends()) end_progress();
  const Checkpoint checkpoint = snapshot();
  traced("checkpoint", checkpoint.exchange, [&] { safe_->heed(wishes, checkpoint, problem()); });
}

void Run::traced(const char* name, int64_t exchange, const std::function<void()>& work) {
  const double begin = Stopwatch::now();
  work();
  trace({name, begin, Stopwatch::now() - begin}, exchange);
}

void Run::trace(const strategies::Phase& phase, int64_t exchange) {
  if (trace_) trace_->add(phase, exchange);
}

void Run::trace(const std::vector<strategies::Phase>& phases, int64_t exchange) {
  if (trace_) trace_->add(phases, exchange);
}

void Run::end_progress() {
  if (progress_) progress_->finish();
}

void Run::write_trace() {
  if (!trace_) return;
  const std::string text = trace_->gather();
  if (writes()) io::write_file_atomically(directory_ + "/trace.json", text);
}

void Run::finish() {
  ranks_.world->barrier();  // no rank leaves while another still needs it
  std::error_code ignored;
  if (writes()) std::filesystem::remove(directory_ + "/" + kDoorsFile, ignored);
  safe_->finish();
  if (progress_) progress_->done();
}

}  // namespace prunex::train
