#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "prunex/comm/connect.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/nccl/cuda_handles.h"
#include "prunex/comm/nccl/gpu.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

/// One call for every rank with a part, as one operation.
ncclResult_t for_each_part(const std::vector<Range>& parts, const std::function<ncclResult_t(int, Range)>& call) {
  ncclResult_t result = ncclGroupStart();
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].empty()) continue;
    const ncclResult_t started = call(static_cast<int>(rank), parts[rank]);
    if (started != ncclSuccess && started != ncclInProgress) result = started;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

/// NCCL's name for the group to be; rank 0 makes it.
ncclUniqueId exchange_id(const Group& group, Store& store, std::chrono::milliseconds timeout) {
  const auto key = "nccl/" + group.name;
  ncclUniqueId id;
  if (group.rank == 0) {
    expect(ncclGetUniqueId(&id));
    store.set(key, std::string(id.internal, sizeof(id.internal)));
    return id;
  }
  const auto value = store.get(key, timeout);
  if (!value || value->size() != sizeof(id.internal)) {
    throw std::runtime_error(fmt::format("[comm] {}: rank {} did not come within {:g} s", group.name, group.members[0],
                                         std::chrono::duration<double>(timeout).count()));
  }
  std::memcpy(id.internal, value->data(), sizeof(id.internal));
  return id;
}

class NcclCommunicator final : public Backend {
 public:
  NcclCommunicator(const Group& group, Store& store, const Timeouts& timeouts, const Guard& guard)
      : Backend(group, guard), device_(c10::cuda::current_device()), timeout_(timeouts.operation), listener_(listen()) {
    const ncclUniqueId id = exchange_id(group, store, timeouts.connect);
    try {
      attempt(timeouts.connect, [&] {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;  // so that a rank that does not come ends the waiting, not the run
        expect(ncclCommInitRankConfig(handle_.out(), size(), id, rank(), &config));
        wait([&] { return !handle_.in_progress(); });
      });
    } catch (const std::exception& error) {
      throw std::runtime_error(describe("connecting", error));
    }
  }

  bool serves(const c10::Device& device) const override { return device.is_cuda() && device.index() == device_; }

  /// Who waits in an operation sees the reason and ends NCCL's work itself. Not here: ncclCommAbort waits for what
  /// other communicators have on the GPU, whose turn to abort would come after this one's.
  void abort(const std::string& reason) override {
    const std::lock_guard lock(reason_mutex_);
    if (abort_reason_.empty()) abort_reason_ = reason;
  }

 private:
  using Enqueue = std::function<ncclResult_t()>;

  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    const auto operation = reduce == Reduce::kMax ? ncclMax : ncclSum;
    enqueue([&] {
      return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()), type_of(tensor),
                           operation, handle_, stream_);
    });
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    enqueue([&] {
      return ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclUint8, root, handle_, stream_);
    });
  }

  void do_barrier() override {
    at::Tensor nothing = at::zeros({1}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA, device_));
    do_all_reduce(nothing, Reduce::kMax);
  }

  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    const FlatBuffer memory(tensor);
    enqueue([&] {
      return for_each_part(parts, [&](int root, Range part) {
        return ncclReduce(memory.at(part.begin), memory.at(part.begin), static_cast<size_t>(part.size()),
                          type_of(tensor), ncclSum, root, handle_, stream_);
      });
    });
  }

  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    const FlatBuffer memory(tensor);
    enqueue([&] {
      return for_each_part(parts, [&](int root, Range part) {
        return ncclBroadcast(memory.at(part.begin), memory.at(part.begin), memory.bytes(part), ncclUint8, root, handle_,
                             stream_);
      });
    });
  }

  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    const FlatBuffer from(input), to(output);
    const Range mine = parts[static_cast<size_t>(rank())];
    const std::vector<Range> rows(parts.size(), mine);
    enqueue([&] {
      expect(ncclGroupStart());
      const ncclResult_t sent = for_each_part(parts, [&](int peer, Range part) {
        if (peer == rank()) return ncclSuccess;
        return ncclSend(from.at(part.begin), from.bytes(part), ncclUint8, peer, handle_, stream_);
      });
      const ncclResult_t received = for_each_part(rows, [&](int peer, Range row) {
        if (peer == rank()) return ncclSuccess;
        return ncclRecv(to.at(peer * row.size()), to.bytes(row), ncclUint8, peer, handle_, stream_);
      });
      const ncclResult_t ended = ncclGroupEnd();
      expect(sent);
      expect(received);
      return ended;
    });
  }

  /// Runs an operation after what the current stream holds, and waits for its end.
  void enqueue(const Enqueue& call) {
    attempt(timeout_, [&] {
      const c10::cuda::CUDAGuard on(device_);
      ready_.record(c10::cuda::getCurrentCUDAStream(device_));
      ready_.hold(stream_);
      expect(call());
      wait([&] { return !handle_.in_progress(); });
      done_.record(stream_);
      wait([&] { return done_.reached(); });
    });
  }

  /// If it fails, NCCL's work is ended, so that no other rank waits for this one.
  void attempt(std::chrono::milliseconds timeout, const std::function<void()>& body) {
    const std::lock_guard busy(mutex_);
    limit_ = timeout;
    deadline_ = Clock::now() + timeout;
    try {
      stop_if_aborted();
      body();
    } catch (const std::exception&) {
      handle_.abort();
      throw;
    }
  }

  /// A dead peer shows as an error of the communicator, as a reason to abort, or as silence; never as a call that
  /// hangs.
  template <class Done>
  void wait(const Done& done) {
    const auto ended = [&] {
      if (done()) return true;
      handle_.in_progress();
      return false;
    };
    wait_until(ended, limit_, deadline_);
  }

  void stop_if_aborted() {
    if (const auto reason = abort_reason(); !reason.empty()) throw std::runtime_error(reason);
  }

  std::string abort_reason() const override {
    const std::lock_guard lock(reason_mutex_);
    return abort_reason_;
  }

  c10::DeviceIndex device_;
  std::chrono::milliseconds timeout_;
  CudaStream stream_;
  CudaEvent ready_, done_;

  std::mutex mutex_;  // held by who uses the handle
  NcclHandle handle_;
  std::chrono::milliseconds limit_{0};
  Clock::time_point deadline_;

  mutable std::mutex reason_mutex_;
  std::string abort_reason_;
  const AbortSwitch::Listener listener_;
};

}  // namespace

void check_gpu() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return;
  throw std::invalid_argument(fmt::format("`device` cuda: no CUDA device: {}", cudaGetErrorString(result)));
}

Gpu use_gpu(int preferred) {
  check_gpu();
  const auto index = static_cast<c10::DeviceIndex>(preferred % c10::cuda::device_count());
  c10::cuda::set_device(index);
  std::array<char, 32> slot = {};
  expect(cudaDeviceGetPCIBusId(slot.data(), slot.size(), index));
  const char* machine = std::getenv("NCCL_HOSTID");  // ranks with different ones are on two machines to NCCL
  return {c10::Device(c10::kCUDA, index),
          fmt::format("{} {}", machine == nullptr ? machine_identity() : machine, slot.data())};
}

std::string gpu_name(const c10::Device& gpu) {
  cudaDeviceProp properties = {};
  expect(cudaGetDeviceProperties(&properties, gpu.index()));
  return properties.name;
}

void let_nccl_use(const std::vector<std::string>& interfaces) {
  setenv("NCCL_NVLS_ENABLE", "0", 0);  // sums in the switch come in any order
  if (!interfaces.empty()) setenv("NCCL_SOCKET_IFNAME", fmt::format("={}", fmt::join(interfaces, ",")).c_str(), 0);
}

std::unique_ptr<Communicator> make_nccl_communicator(const Group& group, Store& store, const Timeouts& timeouts,
                                                     const Guard& guard) {
  return std::make_unique<NcclCommunicator>(group, store, timeouts, guard);
}

}  // namespace prunex::comm
