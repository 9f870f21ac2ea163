// Which images of a set a rank shows a network, and in which batches.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/data/loader.h"
#include "prunex/program/program.h"

namespace prunex::train {

inline constexpr int64_t kEvaluationBatch = 256;

/// Of the images of a set that the ranks of a group share: this rank's.
comm::Range images_of_rank(const data::Dataset& dataset, const comm::Communicator& group);

/// `images` in stretches of `most`, or what the export of the graph allows that is nearest, the last one or two of what
/// is left: of sizes that the export allows, if there are enough images.
std::vector<comm::Range> batches_of(const comm::Range& images, const program::Graph& graph, int64_t most);

/// These images without augmentation, where the weights are. `images` is not empty and within the set.
data::Batch batch_for(const Weights& weights, const data::Dataset& dataset, const comm::Range& images);

}  // namespace prunex::train
