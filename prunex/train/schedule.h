// How long a run is, its phases, and the learning rate of every step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "prunex/train/options.h"

namespace prunex::train {

/// A stretch of steps with settings of its own. A run is one of "train"; "sparse" and "finetune" may follow.
struct Phase {
  const char* name = "train";
  int64_t begin = 0;  ///< steps before it
  int64_t steps = 0;
  double learning_rate = 0.1;        ///< peak
  const char* rate_option = "`lr`";  ///< that decides it
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  int64_t warmup = 0;  ///< steps
  double weight_decay = 0;
  std::vector<int64_t> milestones = {};  ///< steps before each
  double milestone_factor = 0.1;

  int64_t end() const { return begin + steps; }
};

/// The numbers that follow from the options and the size of the training set.
struct RunLength {
  int64_t images_per_step = 0;  ///< of all ranks
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;                                         ///< of every rank
  int64_t exchanges = 0;                                     ///< K
  int64_t prune_start = 0, prune_end = 0, freeze_after = 0;  ///< k0, k1 and the last exchange with open masks
  std::vector<Phase> phases;                                 ///< without gaps; none is empty

  /// Of step 1, 2, …
  const Phase& phase_of(int64_t step) const;
};

/// Throws std::invalid_argument if the training set is smaller than one step of all ranks, or a warm-up never ends.
RunLength run_length(const TrainOptions& options, int64_t training_images);

/// Of a loop that knows no epochs: a single phase; the learning rates of its steps are the loop's own.
RunLength length_of_steps(const TrainOptions& options, int64_t steps);

/// The steps of so many epochs; `option` is what a std::invalid_argument names if they cannot be counted, or
/// round to none.
int64_t steps_of(const char* option, double epochs, const RunLength& length);

/// Learning rate of step 1, 2, … of the run, which the phase holds.
double learning_rate_at(const Phase& phase, int64_t step);
/// Of every step of the run.
std::function<double(int64_t)> learning_rates(const RunLength& length);

}  // namespace prunex::train
