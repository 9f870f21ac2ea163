#include "launch/launch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <list>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "launch/error_lines.h"
#include "launch/starter.h"
#include "launch/stop_signals.h"
#include "prunex/comm/communicator.h"
#include "prunex/comm/connect.h"
#include "prunex/say.h"

namespace prunex::launch {
namespace {

using Clock = ErrorLines::Clock;

// Ranks that lost another one fail too, perhaps earlier than the one that is the reason: how long to wait for that.
constexpr std::chrono::milliseconds kUntilReason{1000};
constexpr std::chrono::milliseconds kFromTerminateToKill{700};
constexpr std::chrono::milliseconds kUntilStragglers{10000};

// A node that fails within this time of its start has failed soon.
constexpr std::chrono::seconds kSoon{10};
constexpr int kMostSoonFailures = 3;
constexpr std::chrono::milliseconds kFirstPause{500};  // then twice as long each time

struct Failure {
  int rank;
  int status;  // as waitpid gives it
  bool killed() const { return WIFSIGNALED(status); }
};

// When a node of an elastic run comes back.
struct Return {
  Clock::time_point started_at = Clock::now() - kSoon;  // what fails at the start of the run fails once
  std::optional<Clock::time_point> failed_at;
  Clock::time_point due;
  int soon = 0;  // failures soon after a start, in a row
  bool stays_away = false;
};

class Supervisor {
 public:
  Supervisor(const BlockedSignals& signals, Starter& starter)
      : signals_(signals),
        starter_(starter),
        shape_(starter.options().shape),
        elastic_(starter.options().elastic),
        returns_(static_cast<size_t>(shape_.nodes())) {
    starter_.start_all(ranks_, [this] { return !interrupted(); });
  }
  ~Supervisor() { signal_all(SIGKILL); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Returns when all ranks have ended.
  int run() {
    while (running() > 0) {
      wait_for_event();
      for (auto& rank : ranks_) read_errors(rank);
      handle_signals();
      end_others();
      bring_back();
      lines_.show_due(Clock::now());
    }
    return conclude();
  }

 private:
  bool interrupted() {
    handle_signals();
    return interrupted_by_ != 0;
  }

  // Whether the others go on without a rank that fails.
  bool outlives() const { return elastic_ && !ends_early_; }

  int64_t running() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.reaped; });
  }

  void wait_for_event() {
    std::vector<pollfd> descriptors = {{signals_.descriptor(), POLLIN, 0}};
    for (const auto& rank : ranks_) {
      if (rank.process.descriptor() >= 0) descriptors.push_back({rank.process.descriptor(), POLLIN, 0});
    }
    const bool timed = !failures_.empty() || !lines_.empty() || (elastic_ && done_at_);
    poll(descriptors.data(), descriptors.size(), timed ? 50 : -1);
  }

  void read_errors(Rank& rank) {
    if (rank.process.descriptor() < 0) return;
    lines_.add(rank.number, rank.process.read(), Clock::now());
    if (rank.process.descriptor() < 0 && lines_.unfinished(rank.number)) lines_.add(rank.number, "\n", Clock::now());
  }

  void handle_signals() {
    while (const auto info = signals_.next()) {
      if (info->ssi_signo == SIGUSR1) {
        signal_all(SIGUSR1);  // the ranks write reports
      } else if (info->ssi_signo != SIGCHLD) {
        pass_on(*info);
      }
    }
    for (auto& rank : ranks_) reap(rank);
  }

  // The kernel itself sends a terminal's Ctrl-C to all processes on it, so the ranks have it already; that the terminal
  // has gone it tells the first of them alone.
  void pass_on(const signalfd_siginfo& info) {
    const int signal = static_cast<int>(info.ssi_signo);
    const auto now = Clock::now();
    if (interrupted_by_ != 0) {
      if (now - interrupted_at_ >= kOneSignal) signal_all(SIGKILL);
      return;
    }
    interrupted_by_ = signal;
    interrupted_at_ = now;
    if (info.ssi_code != SI_KERNEL || signal == SIGHUP) signal_all(signal);
  }

  void reap(Rank& rank) {
    if (rank.reaped || !rank.process.ended()) return;
    rank.reaped = true;
    const int status = rank.process.status();
    read_errors(rank);
    if (elastic_ && ended_on_request(status) && interrupted_by_ == 0) {  // its node leaves, and the others go on
      left_ = WEXITSTATUS(status);
      left_last_ = outlives();
      returns_[static_cast<size_t>(node_of(rank))].stays_away = true;
      return;
    }
    if (ended_on_request(status)) stopped_ = WEXITSTATUS(status);
    if (status == 0 || ended_on_request(status)) {
      if (!done_at_) done_at_ = Clock::now();
      return;
    }
    if (failures_.empty()) {
      failed_at_ = Clock::now();
      ends_early_ = elastic_ && starter_.options().has_begun && !starter_.options().has_begun();
    }
    const bool is_first = !returns_[static_cast<size_t>(node_of(rank))].failed_at;
    if (outlives() && WIFSIGNALED(status) && interrupted_by_ == 0 && is_first) {
      say(fmt::format("prunex: rank {} was killed by signal {}{}\n", rank.number, WTERMSIG(status),
                      on_node(rank.number)));
    }
    if (outlives()) lose(node_of(rank));
    const bool is_own = is_first || !outlives();  // the other ranks of a lost node are killed with it
    if (!terminated_at_ && is_own) {
      failures_.push_back({rank.number, status});
      left_last_ = false;
    }
  }

  void end_others() {
    if (outlives()) return end_stragglers();
    if (failures_.empty()) return;
    const auto now = Clock::now();
    const bool decided = blame(reason()) > 0 || now - failed_at_ >= kUntilReason;
    if (decided && !terminated_at_) {
      terminated_at_ = now;
      lines_.keep_only(reason().rank);
      signal_all(SIGTERM);
    }
    if (terminated_at_ && now - *terminated_at_ >= kFromTerminateToKill) signal_all(SIGKILL);
  }

  // Once the first rank of an elastic run is done all are, but those that the others have given up.
  void end_stragglers() {
    if (done_at_ && Clock::now() - *done_at_ >= kUntilStragglers) signal_all(SIGKILL);
  }

  // A node that others outlive joins them again.
  void bring_back() {
    if (starter_.options().words_to_join.empty() || done_at_ || interrupted_by_ != 0) return;
    if (failures_.empty() || !outlives()) return;
    for (int node = 0; node < shape_.nodes(); ++node) {
      Return& back = returns_[static_cast<size_t>(node)];
      if (back.failed_at && !back.stays_away && Clock::now() >= back.due) start_again(node, back);
    }
  }

  // Notes that a rank of the node has failed: the others go, too.
  void lose(int node) {
    Return& back = returns_[static_cast<size_t>(node)];
    for (const Rank& rank : ranks_) {
      if (node_of(rank) == node) rank.process.signal(SIGKILL);
    }
    if (back.failed_at || back.stays_away) return;  // it has failed, or left
    const auto now = Clock::now();
    back.failed_at = now;
    back.soon = now - back.started_at < kSoon ? back.soon + 1 : 0;
    back.stays_away = back.soon >= kMostSoonFailures;
    back.due = back.soon > 0 ? now + kFirstPause * (1 << (back.soon - 1)) : now;
    if (back.stays_away && !starter_.options().words_to_join.empty()) {
      say(fmt::format("prunex: node {} fails as soon as it has started: it stays away\n", node));
    }
  }

  void start_again(int node, Return& back) {
    const auto is_running = [&](const Rank& rank) { return node_of(rank) == node && !rank.reaped; };
    const bool others_run = std::any_of(ranks_.begin(), ranks_.end(),
                                        [&](const Rank& rank) { return node_of(rank) != node && !rank.reaped; });
    if (!others_run || std::any_of(ranks_.begin(), ranks_.end(), is_running)) return;
    std::erase_if(ranks_, [&](const Rank& rank) { return node_of(rank) == node; });
    back.failed_at.reset();
    back.started_at = Clock::now();
    try {
      starter_.start_again(node, ranks_, [this] { return !interrupted(); });
    } catch (const std::exception& error) {  // the others go on
      say(fmt::format("prunex: node {} cannot be started again: {}\n", node, error.what()));
      lose(node);
    }
  }

  void signal_all(int signal) {
    for (const auto& rank : ranks_) rank.process.signal(signal);
  }

  // Several ranks fail together when one dies; those that lost another one are not the reason.
  int blame(const Failure& failure) const {
    if (failure.killed()) return 2;
    return lines_.reported_loss(failure.rank) ? 0 : 1;
  }
  const Failure& reason() const {
    return *std::max_element(failures_.begin(), failures_.end(),
                             [&](const Failure& a, const Failure& b) { return blame(a) < blame(b); });
  }

  // Of an elastic run the last one: it had outlived the others.
  int conclude() {
    if (failures_.empty() || left_last_ || (elastic_ && done_at_)) {
      lines_.show_all();
      return done_at_ ? stopped_ : left_;
    }
    const auto failure = outlives() ? failures_.back() : reason();
    if (!outlives()) lines_.keep_only(failure.rank);
    lines_.show_all();
    if (interrupted_by_ != 0) {
      say(fmt::format("prunex: interrupted by signal {}; ended {} rank{}\n", interrupted_by_, ranks_.size(),
                      ranks_.size() == 1 ? "" : "s"));
      return 128 + interrupted_by_;
    }
    if (failure.killed()) {
      report(failure, fmt::format("was killed by signal {}", WTERMSIG(failure.status)));
      return 1;
    }
    const int status = WEXITSTATUS(failure.status);
    if (!spoke(failure)) report(failure, fmt::format("failed with status {}", status));
    return status;
  }

  // Errors that the command catches print a line; what rank 0 writes to a terminal is not overheard.
  bool spoke(const Failure& failure) const {
    const int status = WEXITSTATUS(failure.status);
    const bool overheard = failure.rank > 0 || isatty(STDERR_FILENO) == 0;
    return (status == 1 || status == 2) && (!overheard || lines_.wrote(failure.rank));
  }

  void report(const Failure& failure, const std::string& what) const {
    const auto others = ranks_.size() - 1;
    const auto end =
        outlives() ? "none is left" : fmt::format("ended the other {} rank{}", others, others == 1 ? "" : "s");
    say(fmt::format("prunex: rank {} {}{}; {}\n", failure.rank, what, on_node(failure.rank), end));
  }

  int node_of(const Rank& rank) const { return comm::Layout{shape_.node_sizes, rank.number}.node(); }

  std::string on_node(int rank) const {
    return shape_.nodes() > 1 ? fmt::format(" on node {}", comm::Layout{shape_.node_sizes, rank}.node()) : "";
  }

  const BlockedSignals& signals_;
  Starter& starter_;
  const comm::Layout shape_;
  const bool elastic_;
  std::vector<Return> returns_;  // by node
  std::list<Rank> ranks_;
  ErrorLines lines_;
  std::vector<Failure> failures_;  // until the others were asked to end
  Clock::time_point failed_at_;
  std::optional<Clock::time_point> terminated_at_;
  std::optional<Clock::time_point> done_at_;  // of the first rank that ended well
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
  bool ends_early_ = false;  // an elastic run that has not begun ends with its first rank, as any other
  int stopped_ = 0;          // the status of ranks that ended in good order because they were asked to
  int left_ = 0;             // of those whose node left the others
  bool left_last_ = false;   // what was lost before, the run had outlived
};

}  // namespace

std::vector<std::string> words_of(char** argv) {
  std::vector<std::string> words;
  for (char** word = argv; *word != nullptr; ++word) words.emplace_back(*word);
  return words;
}

void expect_room_for(const comm::Layout& shape) {
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int most = std::max(32, 8 * processors);
  if (shape.world_size() <= most) return;
  throw std::invalid_argument(fmt::format(
      "`nodes`, `ranks_per_node`: got {} ranks, wanted at most {} on this machine of {} processors; torchrun "
      "or mpirun starts as many as you like",
      shape.world_size(), most, processors));
}

BlockedSignals signals_of_launcher() {
  return BlockedSignals(and_stops({SIGCHLD, SIGUSR1}));
}

int launch_ranks(const LaunchOptions& options, const std::vector<std::string>& words, const BlockedSignals& signals) {
  // The ranks inherit the limit. The launcher has a pipe and a connection per rank, which is less.
  comm::reserve_descriptors(comm::descriptors_of_rank(options.shape));
  Starter starter(options, words, signals);
  return Supervisor(signals, starter).run();
}

}  // namespace prunex::launch
