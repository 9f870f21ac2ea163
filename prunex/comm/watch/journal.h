// How far the ranks have come, what one did last, and which one holds the others up.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace prunex::comm {

/// One rank in one of its groups. Operations of a group are numbered from 1, in the same order on all its ranks.
struct GroupProgress {
  std::string group;
  int64_t entered = 0;    ///< number of the newest operation
  int64_t done = 0;       ///< operations completed
  std::string operation;  ///< name of the newest one

  bool waiting() const { return entered > done; }
};

/// A rank's groups, those without an operation included.
using Progress = std::vector<GroupProgress>;

/// One line of text per group; decode() leaves out what it does not understand.
std::string encode(const Progress& progress);
Progress decode(const std::string& text);

/// The rank's place in a group; null if it is not a member.
const GroupProgress* find_group(const Progress& progress, const std::string& group);
/// The operation that the rank waits in; null if none.
const GroupProgress* find_wait(const Progress& progress);

struct Laggard {
  int rank = 0;
  int waiting_rank = 0;
  GroupProgress wait;  ///< of waiting_rank: what the laggard has not entered
};

/// Whom does this rank wait for in the end? From its operations to the members that are furthest behind, from there, if
/// they wait in other operations themselves, on; where all have come, by way of those who wait elsewhere, too. Nothing
/// if it does not wait, or all that it waits for have come, or ranks wait in a circle.
std::optional<Laggard> find_laggard(const std::map<int, Progress>& ranks, int rank);

/// Two ranks in operations of the same group and number, but not of the same name; nothing if there are none.
std::optional<std::pair<int, int>> find_disagreement(const std::map<int, Progress>& ranks, int rank);

/// One rank's operations, of several groups at once where threads exchange beside steps. Read from any thread.
class Journal {
 public:
  /// So many operations are kept, and all that wait.
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
    const std::string group_;
    const int64_t number_;
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
  int64_t begin(const std::string& group, const char* operation, int64_t bytes);
  void end(const std::string& group, int64_t number, bool failed);
  GroupProgress& place_in(const std::string& group);

  mutable std::mutex mutex_;
  Progress progress_;
  std::deque<Entry> entries_;
  std::function<void(const Entry&)> on_failure_;
};

}  // namespace prunex::comm
