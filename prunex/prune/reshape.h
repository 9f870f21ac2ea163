// The rule of operations that divide and merge axes.
#pragma once

#include "prunex/prune/operators.h"

namespace prunex::prune {

/// view, reshape, flatten, unflatten, squeeze, unsqueeze: factors the axes of input and output against each other.
/// An axis with units may be merged with fixed ones (each unit then owns several positions) and taken apart again.
/// Where it becomes several axes, one of them carries the units, and positions that agree on it are tied;
/// Axes::choose() says which, the largest first.
void reshape_rule(Axes& axes, const program::Node& node);

}  // namespace prunex::prune
