// How the tests of elastic runs connect ranks that are threads.
#pragma once

#include "prunex/comm/connect.h"

namespace prunex::comm {

inline ConnectOptions quick() {
  using namespace std::chrono_literals;
  return {.timeout = 20s, .join_timeout = 20s, .heartbeat_timeout = 1000ms};
}

}  // namespace prunex::comm
