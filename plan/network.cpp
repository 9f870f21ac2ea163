
#include "plan/cluster.h"
#include "plan/flows.h"

namespace prunex::plan {

bool uses_flows(const Cluster& cluster) {
  if (cluster.engine != Engine::kAuto) return cluster.engine == Engine::kFlows;
  return cluster.other_flows > 0 || (has_flows() && !cluster.has_equal_links());
}

std::unique_ptr<Network> make_network(const Cluster& cluster) {
  return uses_flows(cluster) ? make_flows(cluster) : make_closed_form(cluster);
}

}  // namespace prunex::plan
