// Groups that carry the pretend device's tensors as NCCL carries a GPU's: the host does not see them.
#pragma once

#include "prunex/comm/hierarchy.h"

namespace prunex::tests {

/// Of ranks that are connected for the CPU. Without the pipeline, which adds up in the host's memory.
void serve_pretend_device(comm::Hierarchy& ranks);

}  // namespace prunex::tests
