// Groups that serve tensors on GPUs. CMake chooses what makes them: nccl_communicator.cpp, or without CUDA no_nccl.cpp,
// whose functions, and check_gpu, throw std::invalid_argument "`device` cuda: built without CUDA: …".
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/backend.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

struct Gpu {
  c10::Device device;
  std::string identity;  ///< its machine, NCCL_HOSTID if set, and PCI slot: NCCL refuses a group where two are equal
};

/// Makes a GPU the calling thread's device: number `preferred` mod those that this process sees. Throws like check_gpu
/// (connect.h).
Gpu use_gpu(int preferred);

/// What it is called: "NVIDIA H100 80GB HBM3".
std::string gpu_name(const c10::Device& gpu);

/// What NCCL uses of the network, unless NCCL_SOCKET_IFNAME says otherwise, and not NVLS, unless NCCL_NVLS_ENABLE does;
/// to be called before the first communicator is made. No interfaces: NCCL chooses.
void let_nccl_use(const std::vector<std::string>& interfaces);

/// Connects the group's ranks, each on the current device of the calling thread; no two may share one.
/// All must call. Operations run on a stream of their own, after what the current stream holds by then, and return when
/// the result is there. Sums are taken in NCCL's order, on a given machine and for a given size always the same.
std::unique_ptr<Communicator> make_nccl_communicator(const Group& group, Store& store, const Timeouts& timeouts,
                                                     const Guard& guard);

/// Tensors on the CPU go through `host`; others, of any kind of device, through `device` or, where that is null,
/// through `host` by way of buffers in page-locked memory. Barriers go through `host`. Both have the same ranks; they
/// keep their own counts and journals.
std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device);

/// The same, with another opinion of what lies on the host.
using OnHost = std::function<bool(const at::Tensor&)>;
std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device, OnHost on_host);

/// Gives groups that serve the CPU a second backend for GPUs.
class DeviceGroups {
 public:
  /// gpus: the identity of every rank's GPU, in the order of ranks; what else a communicator needs is borrowed.
  DeviceGroups(std::vector<std::string> gpus, Store& store, const Timeouts& timeouts, const Guard& guard)
      : gpus_(std::move(gpus)), store_(store), timeouts_(timeouts), guard_(guard) {}

  /// Over NCCL if no two members share a GPU, else through the host. All members must call.
  std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> host, const Group& group,
                                       const std::shared_ptr<Journal>& journal) const;

  /// Two ranks of the run that share a GPU, in words; empty if there are none.
  std::string sharing() const;

 private:
  std::vector<int> first_pair(const std::vector<int>& ranks) const;

  std::vector<std::string> gpus_;
  Store& store_;
  Timeouts timeouts_;
  Guard guard_;
};

/// This rank's GPU, for the calling thread: number i of those it sees, for the i-th of the ranks on its machine.
/// machines: of every rank, in their order.
Gpu choose_gpu(const std::vector<std::string>& machines, const Layout& layout, int ranks_before);

}  // namespace prunex::comm
