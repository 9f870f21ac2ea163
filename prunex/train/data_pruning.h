// Pruning by what data says.
#pragma once

#include <cstdint>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/prune/pruner.h"

namespace prunex::train {

/// As Pruner::prune(), for criteria that need evidence: in every step it is collected anew, from the network that is
/// left then. All ranks of `world` must call, with the same images; they prune the same.
void prune_by_evidence(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                       int64_t steps, const data::Dataset& images, comm::Communicator& world);

}  // namespace prunex::train
