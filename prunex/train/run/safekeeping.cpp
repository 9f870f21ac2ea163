#include "prunex/train/run/safekeeping.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "prunex/say.h"
#include "prunex/text/one_line.h"

namespace prunex::train {
namespace {

// Automatic checkpoints but the last take at most a twentieth of the time, whatever the disk.
constexpr double kLeastPause = 20;
// After the last exchange one is written if it is the first, or if the results that follow are worth so much of the
// period.
constexpr double kWorthAtTheEnd = 0.2;

}  // namespace

Safekeeping::Safekeeping(const TrainOptions& options, const std::string& run_directory, const std::string& config,
                         comm::Hierarchy& ranks, StopRequest* stop)
    : every_(options.checkpoint_every),
      period_(options.checkpoint_seconds),
      resume_exchange_(options.resume_exchange),
      resumes_(!options.resume.empty()),
      directory_(run_directory),
      ranks_(ranks),
      stop_(stop),
      checkpoints_(run_directory, config, ranks, options.elastic) {}

std::optional<Checkpoint> Safekeeping::load() {
  if (!resumes_) return std::nullopt;
  Checkpoint checkpoint = checkpoints_.load(resume_exchange_);
  saved_ = checkpoint.exchange;
  return checkpoint;
}

void Safekeeping::begin() {
  saved_at_ = Stopwatch::now();
  if (stop_ != nullptr && every_ != 0) stop_->hear();
}

Wishes Safekeeping::wishes(int64_t exchange, bool last) const {
  Wishes mine;
  if (const int signal = stop_ != nullptr ? stop_->signal() : 0; signal != 0) {
    mine.stop = 1;
    mine.signals = signal;
  }
  if (ranks_.layout.rank != 0) return mine;
  const double since = Stopwatch::now() - saved_at_;
  const bool due = every_ != kAutomatic ? every_ > 0 && exchange % every_ == 0
                   : last               ? saved_ == 0 || since >= kWorthAtTheEnd * period_
                                        : since >= std::max(period_, kLeastPause * save_took_);
  if (due) mine.checkpoint = 1;
  return mine;
}

void Safekeeping::heed(const Wishes& all, const Checkpoint& checkpoint, const std::string& problem) {
  save(checkpoint, problem);
  if (!all.ends()) return;
  ranks_.world->barrier();  // no rank leaves while another still needs it
  throw Interrupted(
      fmt::format("interrupted by signal {} after exchange {}{}", all.signal(), checkpoint.exchange, way_on()),
      all.signal());
}

void Safekeeping::leave(int64_t exchange) const {
  constexpr double kAllHaveHeard = 1;  // seconds in which a launcher has told all that it tells
  if (stop_ == nullptr || stop_->signal() == 0 || stop_->seconds() < kAllHaveHeard) return;
  throw Interrupted(fmt::format("left by signal {} after exchange {}; the others go on", stop_->signal(), exchange),
                    stop_->signal(), true);
}

void Safekeeping::save(const Checkpoint& checkpoint, const std::string& problem) {
  const double begin = Stopwatch::now();
  const auto failure = checkpoints_.save(checkpoint, problem);
  saved_at_ = Stopwatch::now();
  save_took_ = saved_at_ - begin;
  if (!failure) {
    saved_ = checkpoint.exchange;
  } else if (!failure->empty()) {
    const auto rest = saved_ == 0 ? "there is none before" : fmt::format("that of exchange {} stays", saved_);
    say(fmt::format("prunex: warning: no checkpoint of exchange {}: {}; {}\n", checkpoint.exchange, *failure, rest));
  }
}

void Safekeeping::finish() {
  if (every_ != kAutomatic || ranks_.layout.local_rank() != 0) return;
  std::error_code ignored;  // ranks of several nodes may remove the same folder
  std::filesystem::remove_all(directory_ + "/checkpoint", ignored);
}

std::string Safekeeping::way_on() const {
  if (saved_ == 0) return "";
  return fmt::format("; prunex train `resume` {} goes on after exchange {}", text::shell_word(directory_), saved_);
}

}  // namespace prunex::train
