// A thread that does one thing after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace prunex::strategies {

/// Jobs run in the order in which they were handed in. After one has thrown, the rest are dropped until wait().
class InOrder {
 public:
  InOrder();
  /// Drops what has not begun.
  ~InOrder();
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  void add(std::function<void()> job);
  /// Until all are done; throws what a job has thrown.
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // the last member: the others are there when it starts
};

}  // namespace prunex::strategies
