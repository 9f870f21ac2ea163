// Whether a run could begin.
#pragma once

#include <string>
#include <vector>

#include "prunex/train/options.h"

namespace prunex::train {

/// Options, data, network and length of a run, all that train() would refuse before its first step; without ranks, and
/// without writing anything. Throws what train() would throw; returns what it would say at its start.
std::vector<std::string> check(const TrainOptions& options);

}  // namespace prunex::train
