// A group for tensors on the CPU and on accelerators.
#pragma once

#include <functional>
#include <memory>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

/// Tensors on the CPU go through `host`; others through `device` or, where that is null, through `host` by way of
/// buffers in page-locked memory. Barriers go through `host`. Both have the same ranks; they keep their own counts and
/// journals.
std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device);

/// The same, with another opinion of what lies on the host.
using OnHost = std::function<bool(const at::Tensor&)>;
std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device, OnHost on_host);

}  // namespace prunex::comm
