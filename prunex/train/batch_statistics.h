// The batch-norm statistics that weights deserve.
#pragma once

#include <cstdint>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// What batch norm's statistics are estimated from: the first 1024 images of epoch 0 (all, if there are fewer),
/// augmented as in training. Weights that were trained on crops do not fit the statistics of whole images.
data::Dataset calibration_images(const data::Dataset& training, uint64_t seed);

/// Whether the program has batch-norm statistics.
bool has_statistics(const program::Graph& graph);

/// `weights` with batch-norm statistics estimated anew: train-mode forward passes over batches of 128 images of
/// `calibration`, every batch with equal weight. The batches are shared among the ranks of `world`; the same result on
/// every rank. `owners`: the ranks that have this rank's images, where nodes have other ones, though as many; then
/// every rank of `world` takes as many batches. Parameters are shared with `weights`, statistics are new tensors.
Weights with_estimated_statistics(const program::Program& program, const Weights& weights,
                                  const data::Dataset& calibration, comm::Communicator& world,
                                  const comm::Communicator* owners = nullptr);

}  // namespace prunex::train
