// Units that training has driven to nothing: --prune-below.
#pragma once

#include <vector>

#include "prunex/program/program.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// Alive: the units with a weight of at least `threshold` in magnitude, in the layers that make them or that read them
/// (arXiv 1901.09290), and the largest unit of every group. Norms do not count: what follows makes up for their scale.
sparsity::Masks units_above(const std::vector<sparsity::Group>& groups, const program::Model& model, double threshold);

}  // namespace prunex::prune
