// What data says about weights, for the criteria of importance that ask for it.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/prune/importance.h"
#include "prunex/tensors.h"

namespace prunex::train {

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

/// Scores by weights, and evidence, of zeros: empty for groups in which nothing has a say, whatever the numbers are.
std::vector<prune::UnitScores> scores_without_data(prune::ImportanceOptions importance,
                                                   const std::vector<sparsity::Group>& groups,
                                                   const program::Graph& graph);

}  // namespace prunex::train
