// What runs take at the usual speed, whatever else their machine did for a while.
#pragma once

#include <vector>

#include "report/run.h"

namespace prunex::report {

/// What the run's local steps, and the parts of its exchanges in the nodes, take at the usual speed: for every size
/// that the network had, the median over the timed exchanges, or else over its own, so that what else the machine did
/// for a while does not count. Sums of the whole run; those of summary.json where no exchanges are known.
struct UsualSeconds {
  double local = 0, work = 0;
  double inter = 0;  ///< of exchanges, between nodes: the wire, packing, rounding, waiting for each other
};
UsualSeconds usual_seconds(const Run& run);
/// The same for each of the run's exchanges; empty where none are known.
std::vector<UsualSeconds> usual_seconds_by_exchange(const Run& run);
/// Half the distance between the quartiles of an image's local steps over their median: how far timings of one size of
/// the network, of which most exchanges are, scatter. 0 for fewer than four.
double timing_scatter(const Run& run);

}  // namespace prunex::report
