// Pruning by importance, with what data says where the criterion asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/prune/importance.h"
#include "prunex/prune/pruner.h"

namespace prunex::train {

/// The images that criteria of importance see; asked for when one does.
using ImageSource = std::function<data::Dataset()>;

/// Importance::score() by any criterion. Those that need evidence collect it from `images`, which is not called for the
/// others. All ranks of `world` must call, with the same images; they score the same.
std::vector<prune::UnitScores> score_by_importance(const prune::ImportanceOptions& importance,
                                                   const std::vector<sparsity::Group>& groups,
                                                   const program::Model& model, const ImageSource& images,
                                                   comm::Communicator& world);

/// Pruner::prune() likewise; evidence is collected anew in every step, from the network that is left then.
void prune_by_importance(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                         int64_t steps, const ImageSource& images, comm::Communicator& world);

}  // namespace prunex::train
