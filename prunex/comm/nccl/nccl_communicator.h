// A communicator over NCCL, for tensors on GPUs. CMake chooses: nccl_communicator.cpp, or without CUDA no_nccl.cpp,
// whose functions throw std::invalid_argument "--device cuda: built without CUDA: …".
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/group.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

/// Throws std::invalid_argument unless this process sees a GPU.
void check_gpu();

struct Gpu {
  c10::Device device;
  std::string identity;  ///< which no other GPU of a run has
};

/// Makes a GPU the calling thread's device: number `preferred` mod those that this process sees. Throws like check_gpu.
Gpu use_gpu(int preferred);

/// What NCCL uses of the network, unless NCCL_SOCKET_IFNAME says otherwise; to be called before the first communicator
/// is made. None: NCCL chooses.
void let_nccl_use(const std::vector<std::string>& interfaces);

/// Connects the group's ranks, at least two, each on the current device of the calling thread; no two may share one.
/// All must call. Operations run on a stream of their own, after what the current stream holds by then, and return when
/// the result is there. Sums are taken in NCCL's order, on a given machine and for a given size always the same.
std::unique_ptr<Communicator> make_nccl_communicator(const Group& group, Store& store, const Timeouts& timeouts,
                                                     const Guard& guard);

}  // namespace prunex::comm
