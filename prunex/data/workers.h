// Threads that do the pieces of jobs, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace prunex::data {

class Workers {
 public:
  struct Job;

  /// Throws std::system_error if one of them cannot be started.
  explicit Workers(int64_t threads);
  /// Ends what runs, drops what has not begun.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// work(0) … work(pieces - 1), behind all that was started before, several at a time.
  std::shared_ptr<Job> start(int64_t pieces, std::function<void(int64_t)> work);
  /// Returns when all of it is done. Throws what the lowest piece threw that threw.
  void wait(Job& job);
  /// Drops the pieces that nobody has begun, and waits for the others.
  void clear();

 private:
  void run();
  /// Joins the threads that were started.
  void end();

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<std::shared_ptr<Job>> jobs_;  // that have pieces to begin
  int64_t running_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace prunex::data
