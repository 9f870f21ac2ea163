// Which run is best at what, and at which bandwidth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/statistics.h"
#include "report/tasks.h"

namespace prunex::report {

/// What a run costs, its links aside. Sums over the whole run.
struct Cost {
  double local = 0;     ///< measured seconds of local steps, at the usual speed
  double exchange = 0;  ///< measured seconds of exchanges, the part between nodes aside, at the usual speed
  double bytes = 0;     ///< counted, sent by a node to others
  double messages = 0;  ///< hops between nodes, one after the other
  double overlap = 0;   ///< share of the local steps that hide what is sent
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

/// Bytes per second of 1 Mbit/s.
inline constexpr double kBytesPerMbit = 1e6 / 8;

/// Mbit/s at which runs are compared where one bandwidth has to do.
inline constexpr double kUsualMbit = 100;

/// A sentence per quantity, accuracy first: the best run, by how much, and against ddp; "no difference shown" where the
/// 95 % interval of the difference covers it.
std::vector<std::string> verdict_of(const Task& task);

/// Sorts the variants by accuracy, the best first, those without at the end, and gives colours to at most six: the best
/// at something, the ddp that others are held against, then by accuracy one of every strategy, then any.
void arrange(Task& task);

/// The ddp of most seeds, among these the one with the best accuracy; null if there is none. Not a later stage.
const Variant* reference(const Task& task);

/// A difference of shares: "+0.3 ± 1.2" points.
std::string points_text(const Difference& points);

}  // namespace prunex::report
