// A described cluster for SimGrid, and a process for its one engine. For the sources that are compiled with SimGrid.
#pragma once

#include <functional>
#include <simgrid/s4u.hpp>
#include <vector>

#include "plan/cluster.h"

namespace prunex::plan {

struct Platform {
  std::vector<simgrid::s4u::Host*> nodes;
  std::vector<simgrid::s4u::Host*>
      others;                             ///< of every site, behind links that nobody fills: where other traffic begins
  simgrid::s4u::Host* outside = nullptr;  ///< likewise, in no site: where it goes
};

/// How long a message waits on a link: in the platform, or counted by the caller.
enum class Latencies { kOnLinks, kNone };

/// Once per process: inside of in_child().
Platform make_platform(const Cluster& cluster, Latencies latencies);

/// What `simulate` returns in a process of its own. Throws std::runtime_error if that does not end well.
double in_child(const std::function<double()>& simulate);

/// Seconds until `work`, an actor on node 0, ends. Inside of in_child().
double run_actor(const Platform& platform, const std::function<void()>& work);

}  // namespace prunex::plan
