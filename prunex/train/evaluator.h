// The network that trains, as its test images and others see it.
#pragma once

#include "prunex/comm/hierarchy.h"
#include "prunex/data/dataset.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/network.h"

namespace prunex::train {

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
  Evaluation evaluate(const Weights& weights, const data::Dataset& dataset, bool of_node = false) const;
  comm::Communicator& world() const { return *ranks_.world; }

 private:
  const TrainedNetwork& network_;
  const data::Dataset& calibration_;
  comm::Hierarchy& ranks_;
  const bool files_by_node_;
};

}  // namespace prunex::train
