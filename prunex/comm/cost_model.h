// What an all-reduce over all ranks costs, as formulas: docs/communication.md, "Cost".
#pragma once

#include <cstdint>

namespace prunex::comm {

enum class Form {
  kFlat,     ///< one ring through all ranks, node by node
  kLeader,   ///< sum in the node, leaders' ring, broadcast in the node
  kSharded,  ///< every local rank's ring over its shard, pipelined with the node's shared memory
};

/// M nodes of P ranks each.
struct ClusterShape {
  int nodes = 1;
  int ranks_per_node = 1;
};

struct Speeds {
  double link = 0;        ///< bytes per second, each way, of a node's interface
  double latency = 1e-4;  ///< seconds of one message between nodes
  double memory = 4e9;    ///< bytes per second that a rank adds up or copies
};

/// Bytes that leave a node, for S bytes per rank: 2(n-1)/n S with n = M, or n = M P for the flat ring.
double node_bytes(Form form, double bytes, const ClusterShape& shape);

/// node_bytes of the best form: no all-reduce over nodes can do with less.
double least_node_bytes(double bytes, const ClusterShape& shape);

/// Seconds of one all-reduce.
double predicted_seconds(Form form, double bytes, const ClusterShape& shape, const Speeds& speeds);

}  // namespace prunex::comm
