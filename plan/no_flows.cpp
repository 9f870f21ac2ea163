#include <stdexcept>

#include "plan/flows.h"

namespace prunex::plan {

bool has_flows() {
  return false;
}

std::unique_ptr<Network> make_flows(const Cluster&) {
  throw std::invalid_argument(
      "`engine`: got flows, which this build is without: scripts/setup.sh --simgrid, then build again");
}

}  // namespace prunex::plan
