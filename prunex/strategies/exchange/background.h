// Exchanges beside local steps and backward: in a thread of their own and, on a device, on a stream of their own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace prunex::strategies {

/// Does one thing after the other, in the order in which they were handed in; all on one device. After one has thrown,
/// the rest are dropped until wait(). For one caller at a time.
class Background {
 public:
  Background() = default;
  /// Waits for all that was handed in, the device included: other ranks may wait for a part of it.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// On the device, the job comes after what the caller's stream holds now.
  void add(const c10::Device& device, std::function<void()> job);
  /// Until all have returned; on the device, the caller's stream goes on after them. Throws what a job has thrown.
  void wait();

 private:
  std::function<void()> on_own_stream(const c10::Device& device, std::function<void()> job);
  void work();

  std::optional<c10::Stream> stream_;  // none on the CPU
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // from the first job on
};

}  // namespace prunex::strategies
