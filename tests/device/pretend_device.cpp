#include "tests/device/pretend_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/device/late_streams.h"
#include "tests/device/pretend_graph.h"
#include "tests/device/pretend_memory.h"

namespace prunex::tests {
namespace {

const c10::Device kDevice(kPretendType, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kPretendType;
  c10::DeviceType type() const override { return kPretendType; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return current_pretend_stream(); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return new_pretend_stream(); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_pretend_stream(stream); }
  // A kernel has run when its call returns, but for late streams.
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    record_late_event(event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override { block_late_stream(event, stream); }
  bool queryEvent(void* event) const override { return wait_for_late_event(event), true; }
  bool queryStream(const c10::Stream& stream) const override { return wait_for_late_stream(stream), true; }
  void synchronizeEvent(void* event) const override { wait_for_late_event(event); }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for_late_stream(stream); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { destroy_late_event(event); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::instance(); }
  bool isPinnedPtr(const void* address) const override { return PinnedMemory::instance().holds(address); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

bool register_backend() {
  static Hooks hooks;
  c10::register_privateuse1_backend("pretend");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kPretendType, &PretendMemory::instance());
  return true;
}

}  // namespace

c10::Device pretend_device() {
  static const bool registered = register_backend();
  static_cast<void>(registered);
  return kDevice;
}

}  // namespace prunex::tests
