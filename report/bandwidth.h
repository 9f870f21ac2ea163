// Time of a run at a bandwidth that nobody had, from what was measured and what was counted: docs/report.md.
#pragma once

#include <optional>
#include <vector>

#include "report/study.h"

namespace prunex::report {

/// What a run costs, its links aside. Sums over the whole run.
struct Cost {
  double local = 0;       ///< measured seconds of local steps, at the usual speed
  double exchange = 0;    ///< measured seconds of exchanges, the part between nodes aside, at the usual speed
  double bytes = 0;       ///< counted, sent by a node to others
  double messages = 0;    ///< hops between nodes, one after the other
  bool overlaps = false;  ///< the strategy sends while it computes: the slower of both counts
};

/// Of a finished run.
Cost cost_of(const Run& run);
/// Mean over the finished runs; nothing if there are none, or if they ran on one node.
std::optional<Cost> cost_of(const Variant& variant);

/// bytes / link + messages x latency, beside or after the computing. `mbit`: of a node's link, each way.
double seconds_at(const Cost& cost, double mbit);

/// The bandwidths in [low, high] at which both take equally long, rising.
std::vector<double> crossings(const Cost& a, const Cost& b, Interval mbit);

/// 25 … 100,000 Mbit/s.
std::vector<double> usual_bandwidths();

}  // namespace prunex::report
