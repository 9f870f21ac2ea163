// Which run is best at what: the first sentences about a task, and which of its runs have a colour.
#pragma once

#include <string>
#include <vector>

#include "report/study.h"

namespace prunex::report {

/// Mbit/s at which runs are compared where one bandwidth has to do.
inline constexpr double kUsualMbit = 100;

/// A sentence per quantity, accuracy first: the best run, by how much, and against ddp; "no difference shown" where the
/// 95 % interval of the difference covers it.
std::vector<std::string> verdict_of(const Task& task);

/// Sorts the variants by accuracy, the best first, those without at the end, and gives colours to at most six: the best
/// at something, the ddp that others are held against, then by accuracy one of every strategy, then any.
void arrange(Task& task);

/// The ddp with the best accuracy; null if there is none.
const Variant* reference(const Task& task);

/// A difference of shares: "+0.3 ± 1.2" points.
std::string points_text(const Difference& points);

}  // namespace prunex::report
