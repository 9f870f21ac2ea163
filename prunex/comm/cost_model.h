// What messages between nodes cost, as formulas: docs/communication.md, "Cost".
#pragma once

#include <cstdint>

namespace prunex::comm {

/// Bytes that a ring sends at once. 128 KiB to 1 MiB are level; a chunk above half a block ends the overlap.
inline constexpr int64_t kChunkBytes = 256 << 10;

enum class Form {
  kFlat,     ///< one ring through all ranks, node by node
  kLeader,   ///< sum in the node, leaders' ring, broadcast in the node
  kSharded,  ///< every local rank's ring over its shard, pipelined with the node's shared memory
  kDirect,   ///< along every rail each part to its owner, and its sum to all: rounded payloads
};

/// M nodes of P ranks each, in s sites of n = M / s nodes.
struct ClusterShape {
  int nodes = 1;
  int ranks_per_node = 1;
  int sites = 1;
};

struct Speeds {
  double link = 0;             ///< bytes per second, each way, of a node's interface
  double latency = 1e-4;       ///< seconds of one message between nodes
  double memory = 4e9;         ///< bytes per second that a rank adds up or copies
  double site_link = 0;        ///< bytes per second, each way, that a site's nodes share to other sites
  double site_latency = 1e-4;  ///< seconds of one message between sites
};

/// Bytes that leave a node, for S bytes per rank: 2(n-1)/n S with n = M, or n = M P for the flat ring; with sites, by
/// leader or sharded, 2(n-1)/n S in the site and 2(s-1)/s S/n to others.
double node_bytes(Form form, double bytes, const ClusterShape& shape);

/// node_bytes of the best form: no all-reduce over nodes can do with less.
double least_node_bytes(double bytes, const ClusterShape& shape);

/// Bytes that all nodes of a site send to other sites over their one link; 0 with one site.
double site_bytes(Form form, double bytes, const ClusterShape& shape);

/// Seconds of one all-reduce.
double predicted_seconds(Form form, double bytes, const ClusterShape& shape, const Speeds& speeds);

/// Bytes that leave a node, and seconds, where every rank gets `bytes` of every other one, each once over a link:
/// (M-1) P S.
double gathered_node_bytes(double bytes, const ClusterShape& shape);
double gathered_seconds(double bytes, const ClusterShape& shape, const Speeds& speeds);

}  // namespace prunex::comm
