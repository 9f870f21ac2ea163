// trace.json: when every rank did what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/strategy.h"

namespace prunex::train {

/// One rank's events. Times count from the barrier in the constructor, which all ranks make together; of a node that
/// has just joined, from so many seconds before.
class Trace {
 public:
  explicit Trace(comm::Hierarchy& ranks);
  Trace(comm::Hierarchy& ranks, double seconds_before);

  /// An event of exchange k.
  void add(const strategies::Phase& phase, int64_t k);
  void add(const std::vector<strategies::Phase>& phases, int64_t k);

  /// Chrome's trace-event format, all ranks' events: process = node, thread = rank. Collective; empty but on rank 0.
  std::string gather() const;

 private:
  struct Event {
    strategies::Phase phase;
    int64_t exchange;
  };

  std::string text() const;

  comm::Hierarchy& ranks_;
  double origin_;
  std::vector<Event> events_;
};

}  // namespace prunex::train
