// The pretend device's memory: one file, mapped twice.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace prunex::tests {

/// Hands out addresses that nobody may read or write. New memory is full of NaNs, or of zeros. Lives as long as
/// the process.
class PretendMemory final : public c10::DeviceAllocator {
 public:
  static PretendMemory& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {free_, free_}; }

  /// What it says to be free from now on.
  void set_free(size_t bytes) { free_ = bytes; }
  void set_zeros(bool zeros) { fill_ = zeros ? 0 : kNotANumber; }

  /// Where kernels find what lies at a device address.
  void* for_kernels(const void* address) const;
  /// Bytes that were ever taken from the file.
  int64_t grown();

 private:
  static constexpr int kNotANumber = 0xff;

  PretendMemory();
  static void release(void* address);

  char* locked_ = nullptr;  // what tensors point to
  char* open_ = nullptr;    // the same memory
  std::mutex mutex_;
  std::atomic<size_t> free_ = size_t{1} << 30;
  std::atomic<int> fill_ = kNotANumber;
  size_t end_ = 0;                               // of what was ever handed out
  std::map<void*, size_t> sizes_;                // of the blocks in use
  std::map<size_t, std::vector<void*>> unused_;  // freed blocks, by size
};

/// What plays page-locked memory: the CPU's own, with a note of where it is.
class PinnedMemory final : public c10::Allocator {
 public:
  static PinnedMemory& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  bool holds(const void* address);

 private:
  static void release(void* address);

  std::mutex mutex_;
  std::map<const char*, size_t> sizes_;
};

}  // namespace prunex::tests
