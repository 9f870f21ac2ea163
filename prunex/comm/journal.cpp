#include "prunex/comm/journal.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
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

}  // namespace

Journal::Operation::Operation(Journal* journal, const std::string& group, const char* operation, int64_t bytes)
    : journal_(journal), exceptions_(std::uncaught_exceptions()) {
  if (journal_ != nullptr) journal_->begin(group, operation, bytes);
}

Journal::Operation::~Operation() {
  if (journal_ != nullptr) journal_->end(std::uncaught_exceptions() > exceptions_);
}

void Journal::begin(const std::string& group, const char* operation, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& place = place_in(group);
  place.operation = operation;
  entries_.push_back({++place.entered, group, operation, bytes, State::kWaiting, Clock::now()});
  if (entries_.size() > kEntries) entries_.pop_front();
}

void Journal::end(bool failed) {
  std::function<void(const Entry&)> action;
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    const auto newest =
        std::find_if(entries_.rbegin(), entries_.rend(), [](const Entry& one) { return one.state == State::kWaiting; });
    if (newest == entries_.rend()) return;
    newest->state = failed ? State::kFailed : State::kDone;
    newest->seconds = seconds_since(newest->begin);
    if (!failed) place_in(newest->group).done = newest->number;
    entry = *newest;
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
