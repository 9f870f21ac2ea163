// CUDA's and NCCL's handles as values.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <utility>

namespace prunex::comm {

/// Throw std::runtime_error with the library's words.
void expect(cudaError_t result);
/// ncclInProgress is no failure.
void expect(ncclResult_t result);

/// A stream that does not wait for the default one.
class CudaStream {
 public:
  CudaStream() { expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A point in the work of a stream.
class CudaEvent {
 public:
  CudaEvent() { expect(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) { expect(cudaEventRecord(event_, stream)); }
  /// The stream goes on when the event is reached.
  void hold(cudaStream_t stream) const { expect(cudaStreamWaitEvent(stream, event_, 0)); }
  bool reached() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) expect(state);
    return state == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Aborts at its end: operations that are complete stay so. That may wait for other ranks of this machine, whose
/// memory NCCL has open.
class NcclHandle {
 public:
  NcclHandle() = default;
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  void abort() {
    if (handle_ != nullptr) ncclCommAbort(std::exchange(handle_, nullptr));
  }
  ncclComm_t* out() { return &handle_; }
  operator ncclComm_t() const { return handle_; }

  /// Whether the last call is still on its way; throws if it, or anything that it started, has failed.
  bool in_progress() const;

 private:
  ncclComm_t handle_ = nullptr;
};

}  // namespace prunex::comm
