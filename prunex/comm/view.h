// A second name for a group, with counts of its own.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

/// Borrows the group and its connections: calls to both must keep one order on all ranks. The group counts them too.
std::unique_ptr<Communicator> make_view(std::string name, Communicator& group);

}  // namespace prunex::comm
