// What one rank did last, and what it does now.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "prunex/comm/progress.h"

namespace prunex::comm {

/// Written by the rank's own thread, read from any.
class Journal {
 public:
  /// So many operations are kept.
  static constexpr size_t kEntries = 64;

  using Clock = std::chrono::system_clock;
  enum class State { kWaiting, kDone, kFailed };

  struct Entry {
    int64_t number = 0;  ///< in its group, from 1
    std::string group;
    std::string operation;
    int64_t bytes = 0;
    State state = State::kWaiting;
    Clock::time_point begin;
    double seconds = 0;  ///< that it took, or takes so far
  };

  /// An operation, for as long as this lives; it failed if an exception ends it. Of one thread.
  class Operation {
   public:
    /// journal may be null: nothing is written.
    Operation(Journal* journal, const std::string& group, const char* operation, int64_t bytes);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    Journal* journal_;
    int exceptions_;
  };

  /// Announces a group, so that others see this rank in it before its first operation.
  void add_group(const std::string& group);

  Progress progress() const;
  /// Oldest first.
  std::deque<Entry> entries() const;
  /// One line per entry.
  std::string text() const;

  /// Called with an operation that failed, from its thread.
  void on_failure(std::function<void(const Entry&)> action);

 private:
  void begin(const std::string& group, const char* operation, int64_t bytes);
  void end(bool failed);
  GroupProgress& place_in(const std::string& group);

  mutable std::mutex mutex_;
  Progress progress_;
  std::deque<Entry> entries_;
  std::function<void(const Entry&)> on_failure_;
};

}  // namespace prunex::comm
