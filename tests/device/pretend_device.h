// A device whose memory the host cannot touch, for tests on machines without a GPU: PyTorch's PrivateUse1 backend under
// the name "pretend". Its tensors lie in memory that dies at a touch; kernels reach the same memory under addresses
// that only they know, and are the CPU's own, so that every number must be the CPU's, bit for bit.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace prunex::tests {

inline constexpr auto kPretendType = c10::DeviceType::PrivateUse1;

/// The only one. Registers the backend, which holds for the whole process.
c10::Device pretend_device();

/// What the host and the device had to do with each other, in all threads.
struct HostTraffic {
  int64_t reads = 0;    ///< what a GPU's host waits for: copies to the CPU, item(), results whose size depends on data
  int64_t uploads = 0;  ///< copies from the CPU that a GPU's host waits for: not from page-locked memory
  int64_t kernels = 0;
  int64_t grown = 0;  ///< bytes of device memory that no freed block could serve

  HostTraffic operator-(const HostTraffic& before) const;
};

/// Since the process began.
HostTraffic host_traffic();

/// While it lives this thread's copies do not count: they play what a GPU's transport does by itself.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

}  // namespace prunex::tests
