// FPGM: units close to all others of their layer can be replaced by them.
#pragma once

#include <memory>

#include "prunex/prune/importance.h"

namespace prunex::prune {

std::unique_ptr<Importance> make_geometric_median(const ImportanceOptions& options, const program::Graph& graph);

}  // namespace prunex::prune
