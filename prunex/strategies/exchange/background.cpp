#include "prunex/strategies/exchange/background.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

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
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!stream_) return;
  try {
    backend_of(stream_->device()).synchronizeStream(*stream_);
  } catch (const c10::Error&) {  // the device has failed, which whoever uses it next will say
  }
}

void Background::add(const c10::Device& device, std::function<void()> job) {
  if (!device.is_cpu()) job = on_own_stream(device, std::move(job));
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    if (!error_) jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

/// The thread stays on the device: a guard that goes back to the first one would take memory there.
std::function<void()> Background::on_own_stream(const c10::Device& device, std::function<void()> job) {
  const auto backend = backend_of(device);
  if (!stream_) stream_ = backend.getStreamFromGlobalPool(device);
  return [before = reached(backend.getStream(device)), stream = *stream_, job = std::move(job)] {
    backend_of(stream.device()).setDevice(stream.device());
    before->block(stream);
    const c10::StreamGuard guard(stream);
    job();
  };
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  if (stream_) reached(*stream_)->block(backend_of(stream_->device()).getStream(stream_->device()));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Background::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
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
