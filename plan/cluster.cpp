#include "plan/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "prunex/comm/layout.h"

namespace prunex::plan {

double Cluster::link_of(int node) const {
  return link[std::min(static_cast<size_t>(node), link.size() - 1)];
}

bool Cluster::has_equal_links() const {
  return std::all_of(link.begin(), link.end(), [this](double one) { return one == link.front(); });
}

void check(const Cluster& cluster) {
  if (int64_t{cluster.nodes} * cluster.ranks_per_node > comm::kMostRanks) {
    throw std::invalid_argument(fmt::format("`nodes`: got {} of {} ranks, wanted at most {} ranks in all",
                                            cluster.nodes, cluster.ranks_per_node, comm::kMostRanks));
  }
  if (cluster.link.size() > static_cast<size_t>(cluster.nodes)) {
    throw std::invalid_argument(fmt::format("`link`: got {} links, wanted at most one for each of {} nodes",
                                            cluster.link.size(), cluster.nodes));
  }
  if (cluster.other_flows > 0 && cluster.engine == Engine::kClosedForm) {
    throw std::invalid_argument("`other_flows`: the closed form knows no other traffic: wanted `engine` flows");
  }
  if (cluster.nodes % cluster.sites != 0) {
    throw std::invalid_argument(
        fmt::format("`sites`: got {}, wanted a number that divides {} nodes", cluster.sites, cluster.nodes));
  }
  if (cluster.sites > 1 && !cluster.site_link) {
    throw std::invalid_argument("`site_link`: got nothing, wanted the Mbit/s that a site's nodes share to the others");
  }
}

Cluster with_nodes(const Cluster& cluster, int nodes) {
  Cluster other = cluster;
  other.nodes = nodes;
  if (other.link.size() > static_cast<size_t>(nodes)) other.link.resize(static_cast<size_t>(nodes));
  if (nodes % cluster.sites != 0) {
    throw std::invalid_argument(fmt::format("plan: {} nodes in {} sites", nodes, cluster.sites));
  }
  return other;
}

}  // namespace prunex::plan
