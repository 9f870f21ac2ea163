// What a communicator is made from, whatever its backend.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/abort_switch.h"

namespace prunex::comm {

/// A group to be: its name, unique in the run, and its members by world rank, in the order of their ranks in the group.
struct Group {
  std::string name;
  std::vector<int> members;
  int rank = 0;  ///< mine, in the group
};

struct Timeouts {
  std::chrono::milliseconds connect;
  std::chrono::milliseconds operation;
};

/// Who ends this rank's waits when another one is lost.
struct Guard {
  std::shared_ptr<AbortSwitch> abort_switch;
  /// How long to wait, when a connection breaks, for the switch to tell why; 0 if nobody will.
  std::chrono::milliseconds patience{0};
};

}  // namespace prunex::comm
