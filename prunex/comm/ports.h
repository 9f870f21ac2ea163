// Where a process listens when any port will do.
#pragma once

#include <cstdint>
#include <vector>

namespace prunex::comm {

/// TCP ports first … last; 0 to 0: those that the kernel chooses from.
struct PortRange {
  uint16_t first = 0, last = 0;
  std::vector<uint16_t> except = {};  ///< ports in it that are not to be taken

  bool any() const { return last == 0; }
};

}  // namespace prunex::comm
