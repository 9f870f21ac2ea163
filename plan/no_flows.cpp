#include <stdexcept>
#include <string>

#include "plan/flows.h"

namespace prunex::plan {

bool has_flows() {
  return false;
}

std::unique_ptr<Network> make_flows(const Cluster& cluster) {
  const std::string option = cluster.engine == Engine::kFlows ? "`engine`" : "`other_flows`";
  throw std::invalid_argument(
      option + ": wanted flows, which this build is without: scripts/setup.sh --simgrid, then build again");
}

}  // namespace prunex::plan
