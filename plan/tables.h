// A plan in rows and columns.
#pragma once

#include <string>

#include "plan/plan.h"
#include "report/format.h"

namespace prunex::plan {

/// "8 nodes x 4 ranks, links of 1 Gbit/s, 0.1 ms"
std::string describe(const Cluster& cluster);

/// A line per row of the plan.
report::Table row_table(const Plan& plan);

/// Images per second by ranks, to those of the fewest.
report::Table scaling_table(const Plan& plan, const Scaling& scaling);

}  // namespace prunex::plan
