#include "prunex/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace prunex::train {

RunLength run_length(const TrainOptions& options, int64_t training_images) {
  RunLength length;
  const int ranks = shape_of(options).world_size();
  const int64_t images_per_step = options.batch_size * ranks;
  length.steps_per_epoch = training_images / images_per_step;
  if (length.steps_per_epoch == 0) {
    throw std::invalid_argument(
        fmt::format("--batch-size {}: one step of {} ranks takes {} images, the training set has {}",
                    options.batch_size, ranks, images_per_step, training_images));
  }
  const double passes = options.epochs * static_cast<double>(length.steps_per_epoch);
  length.steps =
      options.exchanges > 0 ? options.exchanges * options.local_steps : std::max<int64_t>(1, std::llround(passes));
  length.exchanges = (length.steps + options.local_steps - 1) / options.local_steps;
  length.prune_start = options.prune_start;
  length.prune_end =
      options.prune_end == kAutomatic ? std::max(length.prune_start, length.exchanges / 2) : options.prune_end;
  length.freeze_after = options.freeze_after == kAutomatic ? length.prune_end : options.freeze_after;
  return length;
}

LearningRate::LearningRate(const TrainOptions& options, const RunLength& length)
    : schedule_(options.schedule),
      peak_(options.learning_rate),
      warmup_(std::llround(options.warmup_epochs * static_cast<double>(length.steps_per_epoch))),
      steps_(length.steps) {
  if (warmup_ >= steps_) {
    throw std::invalid_argument(
        fmt::format("--warmup-epochs: got {} steps of warm-up, the run has {}", warmup_, steps_));
  }
}

double LearningRate::operator()(int64_t step) const {
  if (step <= warmup_) return peak_ * static_cast<double>(step) / static_cast<double>(warmup_ + 1);
  const double done = static_cast<double>(step - 1 - warmup_) / static_cast<double>(steps_ - warmup_);
  switch (schedule_) {
    case LearningRateSchedule::kCosine:
      return peak_ * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
    case LearningRateSchedule::kStep:
      return peak_ * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
    case LearningRateSchedule::kConstant:
      return peak_;
  }
  return peak_;
}

}  // namespace prunex::train
