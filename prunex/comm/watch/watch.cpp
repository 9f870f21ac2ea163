#include "prunex/comm/watch/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "prunex/say.h"

namespace prunex::comm {
namespace {

using SteadyClock = std::chrono::steady_clock;

// What a rank tells the others: to write a report; one of them is to name the rank that lags, too.
constexpr const char* kReport = "report";
constexpr const char* kReportAndName = "report and name";

// Requests that come within this time are one: a signal to all ranks reaches each of them several times.
constexpr std::chrono::seconds kOneRequest{1};

// The temporary name is of the form of those that the next run in the folder removes (io/files.h).
bool replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}-00000000.tmp", path, ::getpid());
  std::ofstream file(temporary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  return file && !error;
}

std::string with_prefix(const std::string& prefix, const std::string& text) {
  std::string prefixed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) prefixed += prefix + line + "\n";
  return prefixed;
}

}  // namespace

Watch::Watch(const Layout& layout, const WatchOptions& options) : layout_(layout), options_(options) {
  if (options_.reports) journal_->on_failure([this](const Journal::Entry& entry) { note_failure(entry); });
  if (options_.report_signal != 0) {
    signals_ = std::make_unique<SignalThread>(options_.report_signal, [this] { request_report(); });
  }
}

Watch::~Watch() {
  journal_->on_failure(nullptr);
  signals_.reset();
  std::unique_ptr<Heartbeat> heartbeat;  // whoever still writes finds none
  {
    const std::lock_guard lock(mutex_);
    heartbeat = std::move(heartbeat_);
  }
}

void Watch::start(Store& store, const HeartbeatOptions& options) {
  auto heartbeat = std::make_unique<Heartbeat>(Place{layout_.rank, layout_.world_size()}, store, options, events());
  const std::lock_guard lock(mutex_);
  heartbeat_ = std::move(heartbeat);
}

HeartbeatEvents Watch::events() {
  HeartbeatEvents events;
  events.status = [this] { return encode(journal_->progress()); };
  events.heard = [this](int rank, const std::string& status) { hear(rank, status, false); };
  events.left = [this](int rank, const std::string& status) { hear(rank, status, true); };
  events.died = [this](int rank, const std::string& reason) { lose(rank, reason); };
  events.told = [this](int, const std::string& note) {
    if (is_news()) write_aside(note == kReportAndName);
  };
  events.round = [this] { look_for_leavers(); };
  return events;
}

void Watch::hear(int rank, const std::string& status, bool left) {
  const std::lock_guard lock(mutex_);
  peers_[rank] = {decode(status), Journal::Clock::now(), left};
}

std::optional<int> Watch::silent_rank() const {
  const std::lock_guard lock(mutex_);
  return silent_rank_;
}

bool Watch::has_leavers() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.second.left; });
}

void Watch::lose(int rank, const std::string& reason) {
  if (reason.starts_with(kSilentFor)) {
    const std::lock_guard lock(mutex_);
    silent_rank_ = rank;
  }
  abort_switch_->abort(fmt::format("{} {}: {}", kLostRank, name_of(rank), reason));
  if (options_.reports) write_aside(false);
}

// A rank that ended without completing an operation never will: who waits in it is not to wait out the timeout.
void Watch::look_for_leavers() {
  const auto progress = journal_->progress();
  const std::lock_guard lock(mutex_);
  for (const auto& wait : progress) {
    if (!wait.waiting()) continue;
    for (const auto& [rank, peer] : peers_) {
      const auto* place = peer.left ? find_group(peer.progress, wait.group) : nullptr;
      if (place == nullptr || place->done >= wait.entered) continue;
      abort_switch_->abort(
          fmt::format("{} {}: it ended before {} #{}", kLostRank, name_of(rank), wait.operation, wait.entered));
    }
  }
}

void Watch::note_failure(const Journal::Entry& entry) {
  const bool timed_out = entry.seconds >= 0.95 * std::chrono::duration<double>(options_.operation_timeout).count();
  if (!timed_out && folder().empty()) return;  // the line that names who is gone says it all
  write_journal();
  if (!timed_out || !abort_switch_->reason().empty()) return;
  print_laggard();
  const std::lock_guard lock(mutex_);
  if (heartbeat_) heartbeat_->tell_all(kReport);
}

void Watch::request_report() {
  {
    const std::lock_guard lock(mutex_);
    if (heartbeat_) heartbeat_->tell_all(kReportAndName);
  }
  if (is_news()) write_report(true);
}

// In a thread of its own: a disk that hangs must not silence the heartbeat, nor a terminal that is stopped.
void Watch::write_aside(bool may_name) {
  {
    const std::lock_guard lock(mutex_);
    if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    try {
      writing_ = std::async(std::launch::async, [this, may_name] { write_report(may_name); });
      return;
    } catch (const std::system_error&) {  // no thread to be had
    }
  }
  write_report(may_name);
}

// Of requests that come together, the first.
bool Watch::is_news() {
  const std::lock_guard lock(mutex_);
  const auto now = SteadyClock::now();
  if (reported_at_ && now - *reported_at_ < kOneRequest) return false;
  reported_at_ = now;
  return true;
}

void Watch::write_report(bool may_name) const {
  write_journal();
  if (may_name && layout_.rank == 0) print_laggard();
}

void Watch::write_reports_to(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  folder_ = folder;
}

std::string Watch::folder() const {
  const std::lock_guard lock(mutex_);
  return folder_;
}

void Watch::write_journal() const {
  const std::lock_guard one_file(writes_);
  const std::string folder = this->folder();
  const auto text = fmt::format("last {} operations of rank {}, oldest first\n{}", Journal::kEntries,
                                name_of(layout_.rank), journal_->text());
  const auto path = fmt::format("{}/hang-rank-{}.txt", folder, layout_.rank);
  if (!folder.empty() && replace_file(path, text)) return;
  say(with_prefix(fmt::format("rank {}: ", layout_.rank), text));
}

// Without a heartbeat nobody knows how far the others have come.
void Watch::print_laggard() const {
  std::string lag;
  {
    const std::lock_guard lock(mutex_);
    if (!heartbeat_) return;
    lag = describe_lag();
  }
  say(fmt::format("prunex: {}\n", lag));
}

std::string Watch::describe_lag() const {
  std::map<int, Progress> ranks;
  for (const auto& [rank, peer] : peers_) ranks[rank] = peer.progress;
  ranks[layout_.rank] = journal_->progress();
  int start = layout_.rank;
  for (const auto& [rank, progress] : ranks) {
    if (find_wait(ranks[start]) == nullptr) start = rank;
  }
  const auto* wait = find_wait(ranks[start]);
  if (wait == nullptr) return "no rank waits for another";
  if (const auto laggard = find_laggard(ranks, start)) {
    return fmt::format("rank {} lags: it has not entered {} #{} of {} (others wait {:.0f} s)", name_of(laggard->rank),
                       laggard->wait.operation, laggard->wait.entered, laggard->wait.group,
                       seconds_waited(laggard->waiting_rank));
  }
  if (const auto pair = find_disagreement(ranks, start)) {
    return fmt::format("rank {} is in {} #{} of {}, rank {} in {}: they disagree", name_of(pair->first),
                       wait->operation, wait->entered, wait->group, name_of(pair->second),
                       find_group(ranks[pair->second], wait->group)->operation);
  }
  return fmt::format("no rank lags: all have entered {} #{} of {}, but data does not move", wait->operation,
                     wait->entered, wait->group);
}

double Watch::seconds_waited(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer != peers_.end()) return std::chrono::duration<double>(Journal::Clock::now() - peer->second.since).count();
  const auto entries = journal_->entries();
  return entries.empty() ? 0 : entries.back().seconds;
}

std::string Watch::name_of(int rank) const {
  return fmt::format("{} (node {})", rank, layout_.node_of(rank));
}

}  // namespace prunex::comm
