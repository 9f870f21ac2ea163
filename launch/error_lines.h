// What the ranks write to standard error, line by line.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <string_view>

namespace prunex::launch {

/// What a line of a command's standard error says, without the rank and the command in front of it.
std::string message_of(std::string_view line);

/// Holds every line for a moment, so that an error which all ranks report is shown once, and holds what a rank says
/// about the loss of another one to the end: it would bury the reason, of which the launcher hears later.
class ErrorLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kDelay{300};

  /// At the end of a rank's output, add "\n" if unfinished(rank).
  void add(int rank, std::string_view bytes, Clock::time_point now);
  bool unfinished(int rank) const;
  /// Shows the lines that have been held long enough, or all, but for those that another rank has just written too.
  void show_due(Clock::time_point now);
  void show_all() { show_due(Clock::time_point::max()); }
  /// Drops all lines but this rank's, now and later.
  void keep_only(int rank);

  bool empty() const { return held_.empty(); }
  bool wrote(int rank) const { return last_.count(rank) > 0; }
  /// Whether the last thing that the rank wrote was that it lost another one.
  bool reported_loss(int rank) const;

 private:
  struct Line {
    int rank;
    std::string text;
    Clock::time_point due;
  };
  void hold(Line line);
  void show(Line line);

  std::map<int, std::string> partial_;
  std::map<int, std::string> last_;
  std::deque<Line> held_;
  std::deque<Line> shown_;  // the latest
  int only_ = -1;
};

}  // namespace prunex::launch
