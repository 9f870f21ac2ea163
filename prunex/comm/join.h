// The start of a run: how long its ranks may take to come together, and what one waits for meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "prunex/comm/socket.h"

namespace prunex::comm {

/// One rank's time to join, for all steps together. If it is to announce, a thread of its own says on standard error
/// what the rank waits for: after 5 s and then every 30 s, or every quarter of the time where that is less.
class Join {
 public:
  explicit Join(std::chrono::milliseconds limit, bool announce = false);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  Deadline deadline() const { return begin_ + limit_; }
  /// Until the deadline; at least 1 ms.
  std::chrono::milliseconds left() const;
  bool over() const { return std::chrono::steady_clock::now() >= deadline(); }
  /// "300 s"
  std::string limit() const;

  /// What is waited for from now on and why, as a clause, such as "missing rank 2"; empty: nothing. From any thread.
  void waits_for(const std::string& what);

 private:
  void announce();

  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace prunex::comm
