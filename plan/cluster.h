// A cluster as its owner describes it, and what messages between its nodes take.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "prunex/comm/cost_model.h"

namespace prunex::plan {

/// Who says what messages take.
enum class Engine {
  kAuto,  ///< flows where links differ, if the build has them, and where others send, too; else the closed form
  kClosedForm,
  kFlows,
};

/// In the units of the options.
struct Cluster {
  int nodes = 2, ranks_per_node = 1;
  std::vector<double> link = {1000};  ///< Mbit/s, each way, of node 0, 1, …; the last holds for the rest
  double latency = 0.1;               ///< milliseconds of a message between nodes
  double goodput = 0.95;              ///< share of a link's rate that TCP/IP's headers leave
  double memory = 4;                  ///< GB/s that a rank adds up or copies
  int sites = 1;                      ///< of equal size, consecutive
  std::optional<double> site_link;    ///< Mbit/s, each way, that a site's nodes share to the others
  double site_latency = 10;           ///< milliseconds of a message between sites
  double straggler = 1;               ///< times as long as the others the slowest node takes for a step
  double price_per_hour = 0;          ///< of a node
  int other_flows = 0;                ///< of others, both ways, over each link between sites, or else of each node
  Engine engine = Engine::kAuto;

  int ranks() const { return nodes * ranks_per_node; }
  /// Mbit/s of a node.
  double link_of(int node) const;
  bool has_equal_links() const;
  comm::ClusterShape shape() const { return {nodes, ranks_per_node, sites}; }
};

/// Throws std::invalid_argument that names the option: too many ranks, nodes that the sites do not divide, sites
/// without a link, more links than nodes.
void check(const Cluster& cluster);

/// The same cluster with another number of nodes, which its sites must divide.
Cluster with_nodes(const Cluster& cluster, int nodes);

/// Seconds of one operation among all ranks.
class Network {
 public:
  virtual ~Network() = default;
  /// Of an all-reduce of `bytes` per rank.
  virtual double reduce(comm::Form form, double bytes) const = 0;
  /// Of an all-gather of `bytes` per rank.
  virtual double gather(double bytes) const = 0;
};

/// comm/cost_model.h; of unequal links the slowest holds for all, since every step of a ring waits for it.
std::unique_ptr<Network> make_closed_form(const Cluster& cluster);

/// As the cluster's engine says. Throws std::invalid_argument for flows in a build without SimGrid.
bool uses_flows(const Cluster& cluster);
std::unique_ptr<Network> make_network(const Cluster& cluster);

}  // namespace prunex::plan
