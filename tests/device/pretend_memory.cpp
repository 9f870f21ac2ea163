#include "tests/device/pretend_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace prunex::tests {
namespace {

constexpr size_t kBytes = size_t{8} << 30;  // of addresses; memory is taken when it is written
constexpr size_t kAlignment = 64;

char* map(int file, int protection) {
  void* address = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(address != MAP_FAILED, "[pretend] no memory: ", std::strerror(errno));
  return static_cast<char*>(address);
}

}  // namespace

PretendMemory& PretendMemory::instance() {
  static auto* const memory = new PretendMemory;  // tensors of static life may outlive everything
  return *memory;
}

PretendMemory::PretendMemory() {
  const int file = memfd_create("pretend device", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, kBytes) == 0, "[pretend] no memory: ", std::strerror(errno));
  locked_ = map(file, PROT_NONE);
  open_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
}

c10::DataPtr PretendMemory::allocate(size_t bytes) {
  const c10::Device device(c10::DeviceType::PrivateUse1, 0);
  if (bytes == 0) return {nullptr, device};
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  void* address = nullptr;
  if (auto& blocks = unused_[bytes]; !blocks.empty()) {
    address = blocks.back();
    blocks.pop_back();
  } else {
    TORCH_CHECK(end_ + bytes <= kBytes, "[pretend] out of memory");
    address = locked_ + end_;
    end_ += bytes;
  }
  sizes_[address] = bytes;
  std::memset(for_kernels(address), fill_, bytes);
  return {address, address, &release, device};
}

c10::DeleterFnPtr PretendMemory::raw_deleter() const {
  return &release;
}

void PretendMemory::release(void* address) {
  PretendMemory& memory = instance();
  const std::lock_guard lock(memory.mutex_);
  const auto block = memory.sizes_.find(address);
  if (block == memory.sizes_.end()) return;
  memory.unused_[block->second].push_back(address);
  memory.sizes_.erase(block);
}

void PretendMemory::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(for_kernels(to), for_kernels(from), bytes);
}

void* PretendMemory::for_kernels(const void* address) const {
  const auto* place = static_cast<const char*>(address);
  TORCH_CHECK(place >= locked_ && place < locked_ + kBytes, "[pretend] an address that is not the device's");
  return open_ + (place - locked_);
}

int64_t PretendMemory::grown() {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(end_);
}

PinnedMemory& PinnedMemory::instance() {
  static auto* const memory = new PinnedMemory;
  return *memory;
}

c10::DataPtr PinnedMemory::allocate(size_t bytes) {
  const size_t whole = (bytes / kAlignment + 1) * kAlignment;
  auto* address = static_cast<char*>(std::aligned_alloc(kAlignment, whole));
  TORCH_CHECK(address != nullptr, "[pretend] no memory");
  const std::lock_guard lock(mutex_);
  sizes_[address] = whole;
  return {address, address, &release, c10::Device(c10::DeviceType::CPU)};
}

c10::DeleterFnPtr PinnedMemory::raw_deleter() const {
  return &release;
}

void PinnedMemory::release(void* address) {
  {
    const std::lock_guard lock(instance().mutex_);
    instance().sizes_.erase(static_cast<char*>(address));
  }
  std::free(address);
}

void PinnedMemory::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(to, from, bytes);
}

bool PinnedMemory::holds(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* place = static_cast<const char*>(address);
  const auto after = sizes_.upper_bound(place);
  if (after == sizes_.begin()) return false;
  const auto [begin, size] = *std::prev(after);
  return place < begin + size;
}

}  // namespace prunex::tests
