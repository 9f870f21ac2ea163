#include "prunex/data/workers.h"

#include <utility>

namespace prunex::data {

struct Workers::Job {
  int64_t pieces;
  std::function<void(int64_t)> work;
  int64_t next = 0, left = pieces;
  int64_t failed = pieces;  // the lowest piece that threw
  std::exception_ptr failure{};
};

Workers::Workers(int64_t threads) {
  try {
    for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    end();
    throw;
  }
}

Workers::~Workers() {
  end();
}

void Workers::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    jobs_.clear();
  }
  work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::shared_ptr<Workers::Job> Workers::start(int64_t pieces, std::function<void(int64_t)> work) {
  auto job = std::make_shared<Job>(Job{pieces, std::move(work)});
  if (pieces == 0) return job;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  work_.notify_all();
  return job;
}

void Workers::wait(Job& job) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return job.left == 0; });
  if (job.failure) std::rethrow_exception(job.failure);
}

void Workers::clear() {
  std::unique_lock lock(mutex_);
  jobs_.clear();
  done_.wait(lock, [&] { return running_ == 0; });
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return over_ || !jobs_.empty(); });
    if (over_) return;
    const std::shared_ptr<Job> job = jobs_.front();
    const int64_t piece = job->next++;
    if (job->next == job->pieces) jobs_.pop_front();
    ++running_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job->work(piece);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && piece < job->failed) {
      job->failed = piece;
      job->failure = failure;
    }
    --job->left;
    --running_;
    done_.notify_all();
  }
}

}  // namespace prunex::data
