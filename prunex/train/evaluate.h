// How good a network is, and how fast.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"

namespace prunex::train {

struct Evaluation {
  double accuracy = 0;                     ///< 0 … 1
  double loss = 0;                         ///< mean cross-entropy
  std::vector<double> correct_by_class{};  ///< right answers by label, one number for every class of the set
  std::vector<double> images_by_class{};   ///< that were shown: others than the set's where a broken one is replaced
};

/// Over the whole set, by this process alone.
Evaluation evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset);

/// Over the whole set, each rank of `world` taking its part; the same result on every rank. `owners`: ranks of `world`
/// that have this set, if others have other ones: then over all sets. Collective over both.
Evaluation evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                    comm::Communicator& world, comm::Communicator* owners = nullptr);

inline constexpr int64_t kTimedImages = 128;  ///< in a batch, where nobody says how many

/// Median time of an evaluation batch of the set's first images, after two to warm up.
double milliseconds_per_batch(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                              int64_t batch_size);

/// The same on images of zeros, in the shape that the program's input has.
double milliseconds_per_batch(const program::Model& model, int64_t batch_size);

}  // namespace prunex::train
