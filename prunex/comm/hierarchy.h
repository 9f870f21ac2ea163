// Ranks on nodes: the groups that exchanges use.
#pragma once

#include <memory>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

/// Where one rank stands. Ranks are numbered node by node: rank = node * ranks_per_node + local_rank.
struct Layout {
  int nodes = 1;
  int ranks_per_node = 1;
  int rank = 0;

  int world_size() const { return nodes * ranks_per_node; }
  int node() const { return rank / ranks_per_node; }
  int local_rank() const { return rank % ranks_per_node; }
};

/// One rank's groups. Exchanges use node and rail only, so that every byte belongs to a link; world is for start-up and
/// evaluation. Destroying it closes its connections, so a run ends with world->barrier().
struct Hierarchy {
  Layout layout;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> node;  ///< the ranks of my node
  std::unique_ptr<Communicator> rail;  ///< the ranks with my local index, one per node
};

}  // namespace prunex::comm
