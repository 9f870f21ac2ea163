#include "prunex/strategies/exchange/background.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <utility>

namespace prunex::strategies {
namespace {

/// What the stream was given so far.
std::shared_ptr<c10::Event> reached(const c10::Stream& stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

c10::impl::VirtualGuardImpl backend_of(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::add(const c10::Device& device, std::function<void()> job) {
  if (!device.is_cpu()) job = on_own_stream(device, std::move(job));
  {
    const std::lock_guard lock(mutex_);
    if (!error_) jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

std::function<void()> Background::on_own_stream(const c10::Device& device, std::function<void()> job) {
  const auto backend = backend_of(device);
  if (!stream_) stream_ = backend.getStreamFromGlobalPool(device);
  return [before = reached(backend.getStream(device)), stream = *stream_, job = std::move(job)] {
    before->block(stream);
    const c10::StreamGuard guard(stream);
    job();
  };
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (stream_) reached(*stream_)->block(backend_of(stream_->device()).getStream(stream_->device()));
}

void Background::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    auto job = std::move(jobs_.front());
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
