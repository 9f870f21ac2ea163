#include "tests/device/pretend_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace prunex::tests {
namespace {

constexpr size_t kBytes = size_t{8} << 30;  // of addresses; memory is taken when it is written
constexpr size_t kAlignment = 64;
constexpr int kNotANumber = 0xff;

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
  std::memset(for_kernels(address), kNotANumber, bytes);
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

}  // namespace prunex::tests
