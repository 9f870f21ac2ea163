// How long a run is, and the learning rate of every step.
#pragma once

#include <cstdint>

#include "prunex/train/options.h"

namespace prunex::train {

/// The numbers that follow from the options and the size of the training set.
struct RunLength {
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;                                         ///< of every rank
  int64_t exchanges = 0;                                     ///< K
  int64_t prune_start = 0, prune_end = 0, freeze_after = 0;  ///< k0, k1 and the last exchange with open masks
};

/// Throws std::invalid_argument if the training set is smaller than one step of all ranks.
RunLength run_length(const TrainOptions& options, int64_t training_images);

/// Learning rate of step 1, 2, …
class LearningRate {
 public:
  LearningRate(const TrainOptions& options, const RunLength& length);
  double operator()(int64_t step) const;

 private:
  LearningRateSchedule schedule_;
  double peak_;
  int64_t warmup_, steps_;
};

}  // namespace prunex::train
