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
#include "prunex/tensors.h"

namespace prunex::train {

/// The images that criteria of importance see; asked for when one does.
using ImageSource = std::function<data::Dataset()>;

/// Importance::score() by any criterion. Those that need evidence collect it from `images`, which is not called for the
/// others. All ranks of `world` must call, with the same images; they score the same.
std::vector<prune::UnitScores> score_by_importance(const prune::ImportanceOptions& importance,
                                                   const std::vector<sparsity::Group>& groups,
                                                   const program::Model& model, const ImageSource& images,
                                                   comm::Communicator& world);

/// As score_by_importance() with weights, and evidence, of zeros: empty for groups in which nothing has a say, whatever
/// the numbers are.
std::vector<prune::UnitScores> scores_without_data(prune::ImportanceOptions importance,
                                                   const std::vector<sparsity::Group>& groups,
                                                   const program::Graph& graph);

/// Pruner::prune() likewise; evidence is collected anew in every step, from the network that is left then.
void prune_by_importance(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                         int64_t steps, const ImageSource& images, comm::Communicator& world);

// What data says about weights, for the criteria of importance that ask for it.

/// So many training images, or all there are: `importance_samples`. Of folders and shards, which are listed by class,
/// in an order that mixes them.
data::Dataset evidence_images(const data::Dataset& training, int64_t samples);
/// Throws std::invalid_argument for fewer images than ranks that share them.
void expect_image_for_each(int64_t ranks, int64_t images);

/// Of a criterion that needs evidence, from all images of `dataset`, in eval mode; `seed` draws the labels of OBDC.
/// Gradients are of the cross-entropy: their mean for Taylor, the mean of the squared gradients of single images for
/// Hessian and OBDC; for activations the mean |x| of every layer's input channels. The images are shared among the
/// ranks of `world`, which all must call; the same result on every rank.
TensorDict collect_evidence(prune::Criterion criterion, const program::Model& model, const data::Dataset& dataset,
                            uint64_t seed, comm::Communicator& world);

}  // namespace prunex::train
