#include "prunex/strategies/in_order.h"

#include <utility>

namespace prunex::strategies {

InOrder::InOrder() : thread_([this] { work(); }) {}

InOrder::~InOrder() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void InOrder::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void InOrder::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void InOrder::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error) {
      error_ = error;
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace prunex::strategies
