// Whether a run is long enough, and a rounding fine enough, for what is to be pruned.
#pragma once

#include <string>
#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/train/options.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// To be asked before a run starts. Throws std::invalid_argument for a plan that cannot prune as asked: exchanges that
/// never come, multiples of more units than a group has. Returns a line for each thing that is allowed and likely to
/// disappoint, with advice.
std::vector<std::string> check_plan(const TrainOptions& options, const RunLength& length,
                                    const std::vector<sparsity::Group>& groups);

}  // namespace prunex::train
