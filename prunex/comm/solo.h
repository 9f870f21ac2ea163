// A group of one rank.
#pragma once

#include <memory>
#include <string>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

/// Its operations return at once.
std::unique_ptr<Communicator> make_solo(std::string name);

}  // namespace prunex::comm
