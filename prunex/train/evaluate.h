// How good weights are, and the batch-norm statistics they deserve.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/network.h"

namespace prunex::train {

struct Score {
  double accuracy = 0;                     ///< 0 … 1
  double loss = 0;                         ///< mean cross-entropy
  std::vector<double> correct_by_class{};  ///< right answers by label
};

/// Over the whole set, by this process alone.
Score evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset);

/// Of the images of a set that the ranks of a group share: this rank's.
comm::Range images_of_rank(const data::Dataset& dataset, const comm::Communicator& group);

/// Over the whole set, each rank of `world` taking its part; the same result on every rank. `owners`: ranks of `world`
/// that have this set, if others have other ones: then over all sets. Collective over both.
Score evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
               comm::Communicator& world, comm::Communicator* owners = nullptr);

inline constexpr int64_t kTimedImages = 128;  ///< in a batch, where nobody says how many

/// Median time of an evaluation batch of the set's first images, after two to warm up.
double milliseconds_per_batch(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                              int64_t batch_size);

/// The same on images of zeros, in the shape that the program's input has.
double milliseconds_per_batch(const program::Model& model, int64_t batch_size);

/// What batch norm's statistics are estimated from: the first 1024 images of epoch 0 (all, if there are fewer),
/// augmented as in training. Weights that were trained on crops do not fit the statistics of whole images.
data::Dataset calibration_images(const data::Dataset& training, uint64_t seed);

/// `weights` with batch-norm statistics estimated anew: train-mode forward passes over batches of 128 images of
/// `calibration`, every batch with equal weight. The batches are shared among the ranks of `world`; the same result on
/// every rank. `owners`: the ranks that have this rank's images, where nodes have other ones, though as many; then
/// every rank of `world` takes as many batches. Parameters are shared with `weights`, statistics are new tensors.
Weights with_estimated_statistics(const program::Program& program, const Weights& weights,
                                  const data::Dataset& calibration, comm::Communicator& world,
                                  const comm::Communicator* owners = nullptr);

/// Scores a network that trains, on all ranks together. Calls are collective.
class Evaluator {
 public:
  /// Borrows all. `files_by_node`: nodes have other images to calibrate by.
  Evaluator(const TrainedNetwork& network, const data::Dataset& calibration, comm::Hierarchy& ranks, bool files_by_node)
      : network_(network), calibration_(calibration), ranks_(ranks), files_by_node_(files_by_node) {}

  /// The strategy's product, or other weights, with statistics of their own.
  Weights product(const strategies::Strategy& strategy) const { return product(strategy.product()); }
  Weights product(const Weights& weights) const { return with_statistics(network_.program(), weights); }
  /// Of a network that is cut further.
  Weights with_statistics(const program::Program& program, const Weights& weights) const;
  /// `of_node`: other nodes have other images.
  Score score(const Weights& weights, const data::Dataset& dataset, bool of_node = false) const;
  comm::Communicator& world() const { return *ranks_.world; }

 private:
  const TrainedNetwork& network_;
  const data::Dataset& calibration_;
  comm::Hierarchy& ranks_;
  const bool files_by_node_;
};

}  // namespace prunex::train
