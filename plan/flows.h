// SimGrid's flows (LGPL-2.1), where the build has them: links that differ, sites, and other traffic, whose shares
// follow from what else crosses each link at the time.
#pragma once

#include <memory>
#include <vector>

#include "plan/cluster.h"

namespace prunex::plan {

/// Built with -DPRUNEX_SIMGRID, or by itself where SimGrid is found.
bool has_flows();

/// Bytes over links are simulated, all flows of a phase at once, sharing links fairly (max-min); latencies and work in
/// the nodes are those of the closed form. A simulation is a process of its own. Throws std::invalid_argument in a
/// build without SimGrid.
std::unique_ptr<Network> make_flows(const Cluster& cluster);

/// From one node to another.
struct Flow {
  int from = 0, to = 0;
  double bytes = 0;
};

/// Phases that follow each other, for an all-reduce of one byte per rank: what crosses every link in the steady state
/// of a ring, or from everyone to everyone, as one flow per node to its neighbour, or two with sites.
std::vector<std::vector<Flow>> phases_of(comm::Form form, const comm::ClusterShape& shape);

/// What a node sends where all get `bytes` of every rank of a node, likewise.
std::vector<Flow> gathering(double bytes, const comm::ClusterShape& shape);

}  // namespace prunex::plan
