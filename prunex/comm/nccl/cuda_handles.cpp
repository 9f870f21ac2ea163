#include "prunex/comm/nccl/cuda_handles.h"

#include <stdexcept>
#include <string>

namespace prunex::comm {

void expect(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(result));
}

void expect(ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string why = ncclGetLastError(nullptr);
  throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result) + (why.empty() ? "" : ": " + why));
}

bool NcclHandle::in_progress() const {
  ncclResult_t state = ncclSuccess;
  expect(ncclCommGetAsyncError(handle_, &state));
  expect(state);
  return state == ncclInProgress;
}

}  // namespace prunex::comm
