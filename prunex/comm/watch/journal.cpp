#include "prunex/comm/watch/journal.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <sstream>
#include <utility>

namespace prunex::comm {
namespace {

double seconds_since(Journal::Clock::time_point begin) {
  return std::chrono::duration<double>(Journal::Clock::now() - begin).count();
}

const char* name_of(Journal::State state) {
  if (state == Journal::State::kWaiting) return "waiting";
  return state == Journal::State::kDone ? "done" : "failed";
}

// The member of the wait's group that is furthest behind it; -1 if none is.
int furthest_behind(const std::map<int, Progress>& ranks, const GroupProgress& wait) {
  int furthest = -1;
  int64_t least = wait.entered;
  for (const auto& [rank, progress] : ranks) {
    const auto* place = find_group(progress, wait.group);
    if (place == nullptr || place->entered >= least) continue;
    least = place->entered;
    furthest = rank;
  }
  return furthest;
}

}  // namespace

std::string encode(const Progress& progress) {
  std::string text;
  for (const auto& place : progress) {
    text += fmt::format("{}\t{}\t{}\t{}\n", place.group, place.entered, place.done, place.operation);
  }
  return text;
}

Progress decode(const std::string& text) {
  Progress progress;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    GroupProgress place;
    std::istringstream fields(line);
    if (!std::getline(fields, place.group, '\t') || !(fields >> place.entered >> place.done)) continue;
    fields.get();
    std::getline(fields, place.operation);
    progress.push_back(std::move(place));
  }
  return progress;
}

const GroupProgress* find_group(const Progress& progress, const std::string& group) {
  const auto found =
      std::find_if(progress.begin(), progress.end(), [&](const auto& one) { return one.group == group; });
  return found == progress.end() ? nullptr : &*found;
}

const GroupProgress* find_wait(const Progress& progress) {
  const auto found = std::find_if(progress.begin(), progress.end(), [](const auto& one) { return one.waiting(); });
  return found == progress.end() ? nullptr : &*found;
}

std::optional<Laggard> find_laggard(const std::map<int, Progress>& ranks, int rank) {
  std::deque<int> open = {rank};
  std::set<int> seen = {rank};
  for (; !open.empty(); open.pop_front()) {
    for (const auto& wait : ranks.at(open.front())) {
      if (!wait.waiting()) continue;
      const int behind = furthest_behind(ranks, wait);
      if (behind >= 0 && find_wait(ranks.at(behind)) == nullptr) return Laggard{behind, open.front(), wait};
      for (const auto& [other, progress] : ranks) {
        const bool leads_on = behind >= 0 ? other == behind : find_group(progress, wait.group) != nullptr;
        if (leads_on && seen.insert(other).second) open.push_back(other);
      }
    }
  }
  return std::nullopt;
}

std::optional<std::pair<int, int>> find_disagreement(const std::map<int, Progress>& ranks, int rank) {
  const auto* wait = ranks.count(rank) > 0 ? find_wait(ranks.at(rank)) : nullptr;
  if (wait == nullptr) return std::nullopt;
  for (const auto& [other, progress] : ranks) {
    const auto* place = find_group(progress, wait->group);
    if (place == nullptr || place->entered != wait->entered || place->operation == wait->operation) continue;
    return std::pair(rank, other);
  }
  return std::nullopt;
}

Journal::Operation::Operation(Journal* journal, const std::string& group, const char* operation, int64_t bytes)
    : journal_(journal),
      group_(group),
      number_(journal == nullptr ? 0 : journal->begin(group, operation, bytes)),
      exceptions_(std::uncaught_exceptions()) {}

Journal::Operation::~Operation() {
  if (journal_ != nullptr) journal_->end(group_, number_, std::uncaught_exceptions() > exceptions_);
}

int64_t Journal::begin(const std::string& group, const char* operation, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& place = place_in(group);
  place.operation = operation;
  entries_.push_back({++place.entered, group, operation, bytes, State::kWaiting, Clock::now()});
  if (entries_.size() > kEntries) {
    const auto oldest = std::find_if(entries_.begin(), entries_.end(),
                                     [](const Entry& entry) { return entry.state != State::kWaiting; });
    if (oldest != entries_.end()) entries_.erase(oldest);
  }
  return place.entered;
}

void Journal::end(const std::string& group, int64_t number, bool failed) {
  std::function<void(const Entry&)> action;
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    const auto mine = std::find_if(entries_.rbegin(), entries_.rend(),
                                   [&](const Entry& one) { return one.number == number && one.group == group; });
    if (mine == entries_.rend()) return;
    mine->state = failed ? State::kFailed : State::kDone;
    mine->seconds = seconds_since(mine->begin);
    if (!failed) place_in(group).done = number;
    entry = *mine;
    if (failed) action = on_failure_;
  }
  if (action) action(entry);
}

GroupProgress& Journal::place_in(const std::string& group) {
  for (auto& place : progress_) {
    if (place.group == group) return place;
  }
  progress_.push_back({group});
  return progress_.back();
}

void Journal::add_group(const std::string& group) {
  const std::lock_guard lock(mutex_);
  place_in(group);
}

Progress Journal::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

std::deque<Journal::Entry> Journal::entries() const {
  const std::lock_guard lock(mutex_);
  auto entries = entries_;
  for (auto& entry : entries) {
    if (entry.state == State::kWaiting) entry.seconds = seconds_since(entry.begin);
  }
  return entries;
}

std::string Journal::text() const {
  std::string text;
  for (const auto& entry : entries()) {
    const auto begin = std::chrono::floor<std::chrono::milliseconds>(entry.begin.time_since_epoch());
    text += fmt::format("{:%H:%M:%S} UTC  {} #{} of {}, {} bytes: {}, {:.3f} s\n", begin, entry.operation, entry.number,
                        entry.group, entry.bytes, name_of(entry.state), entry.seconds);
  }
  return text;
}

void Journal::on_failure(std::function<void(const Entry&)> action) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(action);
}

}  // namespace prunex::comm
