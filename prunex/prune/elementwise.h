// Criteria that add up a number per entry of the weights.
#pragma once

#include <memory>

#include "prunex/prune/importance.h"

namespace prunex::prune {

/// Magnitude, batch-norm scale, Taylor, Hessian and OBDC; arguments as in make_importance().
std::unique_ptr<Importance> make_elementwise(const ImportanceOptions& options, const program::Graph& graph,
                                             TensorDict evidence);

}  // namespace prunex::prune
