// Ranks on nodes: the groups that exchanges use.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/ports.h"
#include "prunex/comm/privacy.h"

namespace prunex::comm {

class Store;
class Watch;

/// An all-reduce over all ranks in one go, in which the work inside the nodes hides behind the wire. Counts its bytes
/// on the node's and the rail's communicators by the formulas of reduce_scatter, all_reduce and all_gather_parts.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  /// tensor <- sum over all ranks; one-dimensional, contiguous, float or double. Bit-identical on all ranks.
  virtual void all_reduce(at::Tensor& tensor) = 0;
};

/// One rank's groups. Exchanges use node and rail (with sites: node, site and cross), so that every byte belongs to a
/// kind of link, or flat; world is for start-up and evaluation. Destroying it closes its connections, so a run ends
/// with world->barrier(). A rank that is on no rail, because its node is larger than the smallest one, is alone in its
/// rail, site and cross: their operations do nothing there.
struct Hierarchy {
  Layout layout;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> node;  ///< the ranks of my node
  std::unique_ptr<Communicator> rail;  ///< the ranks with my local index, one per node
  std::unique_ptr<Communicator> flat;  ///< all ranks, for exchanges that know no nodes; world's connections

  // Null unless there are several sites. An all-reduce over the rail is then: reduce-scatter over site, all-reduce over
  // cross, all-gather over site, and crosses every site's link once.
  std::unique_ptr<Communicator> site;   ///< the members of my rail in my site
  std::unique_ptr<Communicator> cross;  ///< one member of my rail per site: those with my place in their site

  std::unique_ptr<Pipeline> pipeline;  ///< of all ranks; null with several sites, where a node has no shared memory or
                                       ///< one rank alone
  /// Why the ranks of a node cannot share memory and talk over loopback; empty if all can or should not.
  std::string no_shared_memory;
  std::vector<std::string> interfaces;  ///< the network interfaces that were named
  Privacy privacy;                      ///< what the ranks prove to each other
  std::string address;                  ///< numeric, where other ranks reach this one; empty if there is none
  PortRange ports;                      ///< where this rank listens when any port will do
  uint16_t port = 0;                    ///< where the ranks met, which is free again; 0: they met elsewhere
  /// Connects other ranks of the run in the same way, all of which must call, within this time; null where another
  /// program has connected these.
  std::function<Hierarchy(const Layout&, Store&, std::chrono::milliseconds)> connect_others;
  /// What this node's values weigh in the next mean over nodes, where nodes have done different amounts: its share of
  /// the work, times the number of nodes.
  double share = 1;
  c10::Device device = c10::kCPU;  ///< where this rank computes; its groups serve tensors there and on the CPU
  /// Why tensors on the device go by way of the CPU, in some groups at least; empty if they do not.
  std::string staged;
  /// Whether groups are in a BackgroundUse: node, and those between nodes.
  using InBackground = std::shared_ptr<std::atomic<bool>>;
  InBackground node_in_background = std::make_shared<std::atomic<bool>>(false);
  InBackground between_in_background = std::make_shared<std::atomic<bool>>(false);

  std::shared_ptr<Watch> watch;  ///< the last member: this rank says goodbye before its connections close
};

/// While it lives its owner may call these groups of a Hierarchy from a thread of its own, beside the rank's. Two such
/// threads would take each other's messages: throws std::invalid_argument if another one lives.
class BackgroundUse {
 public:
  explicit BackgroundUse(Hierarchy::InBackground groups);
  ~BackgroundUse() { *taken_ = false; }
  BackgroundUse(const BackgroundUse&) = delete;
  BackgroundUse& operator=(const BackgroundUse&) = delete;

 private:
  const Hierarchy::InBackground taken_;
};

/// One of a rank's groups.
struct Membership {
  std::unique_ptr<Communicator> Hierarchy::*group;
  Group members;

  bool crosses_nodes() const { return group != &Hierarchy::world && group != &Hierarchy::node; }
};

/// World, node and rail; with sites, site and cross too.
std::vector<Membership> memberships(const Layout& layout);

/// The same ranks as one node, over flat.
Hierarchy as_one_node(Hierarchy& ranks);

/// The ranks of this node, as if there were no others: over node.
Hierarchy as_own_node(Hierarchy& ranks);

/// What this rank's exchanges have moved so far, in all groups but world.
Volume moved_by_exchanges(const Hierarchy& ranks);

/// Where reports of a run that hangs go: hang-rank-N.txt in the folder; until then, to standard error.
void write_hang_reports_to(const Hierarchy& ranks, const std::string& folder);

}  // namespace prunex::comm
