// The property that every pruned network must have, checked by pruning half of every group.
#pragma once

#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/groups.h"

namespace prunex::prune {

/// Largest difference, relative to the largest output, between the network without the units that it prunes and the
/// whole network whose columns of these units are zero (eval mode, random batch-norm statistics). For programs whose
/// only constants that hold a width are the groups of depthwise convolutions.
double cut_error(program::Model& model, const std::vector<DependencyGroup>& groups, const at::Tensor& images);

}  // namespace prunex::prune
