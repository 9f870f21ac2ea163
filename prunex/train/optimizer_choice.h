// The local optimizer of a run, by its options: numbers that are usual where nothing was said.
#pragma once

#include <cstdint>

#include "prunex/train/optimizer.h"
#include "prunex/train/options.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// By which a steady gradient moves theta 1 / (1 - momentum) times as far; 0: the rule takes means.
double amplifying_momentum(const TrainOptions& options);

/// What is added to gradients after the strategy has gathered their momentum counts for as much as it would within: so
/// many times as much; 1 where the optimizer has the momentum.
double weight_beside_momentum(const TrainOptions& options);

/// The local optimizer at the peak of the learning rate; without momentum where the strategy has it.
OptimizerOptions optimizer_of(const TrainOptions& options);
/// In a step of the run, which the phase holds.
OptimizerOptions optimizer_at(const TrainOptions& options, const Phase& phase, int64_t step);

}  // namespace prunex::train
