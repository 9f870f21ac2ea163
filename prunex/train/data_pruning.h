// Pruning by importance, with what data says where the criterion asks for it.
#pragma once

#include <cstdint>
#include <functional>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/prune/pruner.h"

namespace prunex::train {

/// Pruner::prune() by any criterion. Those that need evidence collect it anew in every step, from the network that is
/// left then, from `images`, which is not called for the others. All ranks of `world` must call, with the same images;
/// they prune the same.
void prune_by_importance(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                         int64_t steps, const std::function<data::Dataset()>& images, comm::Communicator& world);

}  // namespace prunex::train
