#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "prunex/train/steps/device_graph.h"

namespace prunex::train {
namespace {

/// Ranks may be threads of one process, whose recordings share the generator's list of graphs.
std::mutex& recording() {
  static std::mutex mutex;
  return mutex;
}

/// One of the thread's own for all its graphs: a stream has caches of its own, and the pool has few.
at::cuda::CUDAStream stream_on(const c10::Device& device) {
  thread_local std::map<c10::DeviceIndex, at::cuda::CUDAStream> streams;
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  return streams.emplace(device.index(), at::cuda::getStreamFromPool(false, device.index())).first->second;
}

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(const c10::Device& device) : stream_(stream_on(device)) {}

  /// Its memory goes back to where other work takes it from.
  ~CudaGraph() override {
    const std::lock_guard alone(recording());
    try {
      at::cuda::getCurrentCUDAStream(stream_.device_index()).synchronize();
      graph_.reset();              // which takes it off that list
    } catch (const c10::Error&) {  // the device has failed, which whoever uses it next will say
    }
  }

  void warm_up(const std::function<void()>& work) override { on_own_stream(work); }

  /// What warming up has left in the cache goes back first: while a graph is recorded nothing does, and its memory is
  /// taken anew.
  void capture(const std::function<void()>& work) override {
    const std::lock_guard alone(recording());
    stream_.synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    on_own_stream([&] { record(work); });
  }

  void replay() override { graph_->replay(); }

 private:
  /// Nothing can be recorded on the default stream. After what the current one holds, which goes on after it.
  void on_own_stream(const std::function<void()>& work) {
    const auto current = at::cuda::getCurrentCUDAStream(stream_.device_index());
    at::cuda::CUDAEvent before, after;
    before.record(current);
    before.block(stream_);
    const c10::cuda::CUDAStreamGuard guard(stream_);
    work();
    after.record(stream_);
    after.block(current);
  }

  /// Other threads may call what this one must not: transports, and other ranks' steps.
  void record(const std::function<void()>& work) {
    const auto pool = at::cuda::graph_pool_handle();
    graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon(pool);
      throw;
    }
    graph_->capture_end();
  }

  void abandon(c10::MempoolId_t pool) {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {  // of the work that could not be recorded, which is on its way already
      c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool);
      try {
        at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
      } catch (const c10::Error&) {  // the recording had ended there
      }
    }
  }

  at::cuda::CUDAStream stream_;
  std::optional<at::cuda::CUDAGraph> graph_{std::in_place};
};

}  // namespace

std::unique_ptr<DeviceGraph> make_device_graph(const c10::Device& device) {
  return device.is_cuda() ? std::make_unique<CudaGraph>(device) : nullptr;
}

}  // namespace prunex::train
