#include "prunex/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "prunex/train/optimizer_choice.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

/// Images of a run: what is added up of them fits 63 bits.
constexpr double kMostImages = 1e18;

double most_steps(const RunLength& length) {
  return kMostImages / static_cast<double>(std::max<int64_t>(1, length.images_per_step));
}

/// `exchanges` x `local_steps`.
int64_t steps_of_exchanges(const TrainOptions& options, const RunLength& length) {
  const double steps = static_cast<double>(options.exchanges) * static_cast<double>(options.local_steps);
  if (steps <= most_steps(length)) return options.exchanges * options.local_steps;
  throw std::invalid_argument(fmt::format("`exchanges`: got {} of {} steps each, wanted at most {:.3g} steps in all",
                                          options.exchanges, options.local_steps, most_steps(length)));
}

/// In steps.
std::vector<int64_t> milestones_of(const TrainOptions& options, const RunLength& length) {
  std::vector<int64_t> steps;
  if (options.schedule != LearningRateSchedule::kMilestones) return steps;
  for (const double epochs : options.milestones) steps.push_back(steps_of("`lr_milestones`", epochs, length));
  return steps;
}

/// Of another phase, for which nothing was asked.
LearningRateSchedule schedule_after(const TrainOptions& options) {
  const bool own = options.schedule == LearningRateSchedule::kMilestones;
  return own ? LearningRateSchedule::kConstant : options.schedule;
}

/// Cuts come after exchanges, and fine-tuning with the first of them: what is before goes on until that exchange has
/// landed, unless it is over before the first one of the run.
void end_with_an_exchange(Phase& phase, const TrainOptions& options) {
  if (phase.end() < options.local_steps) return;
  const int64_t beyond = phase.end() % options.local_steps;
  if (beyond > 0) phase.steps += options.local_steps - beyond;
  const bool is_waited_for = phase.end() / options.local_steps <= options.local_after + 1;  // the first of weights, too
  if (!is_waited_for) phase.steps += options.overlap;
}

int64_t rounded_steps_of(const char* option, double epochs, const RunLength& length) {
  const double steps = epochs * static_cast<double>(length.steps_per_epoch);
  if (steps <= most_steps(length)) return std::llround(steps);
  throw std::invalid_argument(fmt::format("{}: got {}, wanted at most {:.3g}", option, epochs,
                                          most_steps(length) / static_cast<double>(length.steps_per_epoch)));
}

/// The phases that have steps, one after the other.
std::vector<Phase> phases_of(const TrainOptions& options, const RunLength& length) {
  const auto& sparse = options.sparse;
  const OptimizerOptions usual = optimizer_of(options);
  const int64_t warmup =
      options.warmup_steps > 0 ? options.warmup_steps : steps_of("`warmup_epochs`", options.warmup_epochs, length);
  const int64_t training = options.exchanges > 0 ? steps_of_exchanges(options, length)
                                                 : rounded_steps_of("`epochs`", options.epochs, length);
  std::vector<Phase> all{{.name = "train",
                          .steps = training,
                          .learning_rate = usual.learning_rate,
                          .schedule = options.schedule,
                          .warmup = warmup,
                          .weight_decay = usual.weight_decay,
                          .milestones = milestones_of(options, length),
                          .milestone_factor = options.milestone_factor},
                         {.name = "sparse",
                          .steps = steps_of("`sparse_epochs`", sparse.epochs, length),
                          .learning_rate = sparse.learning_rate.value_or(usual.learning_rate),
                          .rate_option = sparse.learning_rate ? "`sparse_lr`" : "`lr`",
                          .schedule = sparse.schedule.value_or(schedule_after(options)),
                          .weight_decay = sparse.weight_decay},
                         {.name = "finetune",
                          .steps = steps_of("`finetune_epochs`", options.finetune.epochs, length),
                          .learning_rate = options.finetune.learning_rate.value_or(usual.learning_rate),
                          .rate_option = options.finetune.learning_rate ? "`finetune_lr`" : "`lr`",
                          .schedule = options.finetune.schedule.value_or(schedule_after(options)),
                          .weight_decay = usual.weight_decay}};
  if (all[1].steps + all[2].steps == 0) all[0].steps = std::max<int64_t>(1, all[0].steps);
  const bool cuts = !options.pruning.target.empty();
  std::vector<Phase> phases;
  for (Phase& phase : all) {
    if (phase.steps == 0) continue;
    const bool begins_with_a_cut = cuts && &phase == &all.back() && !phases.empty();
    if (begins_with_a_cut) end_with_an_exchange(phases.back(), options);
    phase.begin = phases.empty() ? 0 : phases.back().end();
    phases.push_back(phase);
  }
  return phases;
}

void set_exchanges(RunLength& length, const TrainOptions& options) {
  length.exchanges = (length.steps + options.local_steps - 1) / options.local_steps;
  // The automatic plan begins where weights are exchanged.
  length.prune_start = options.prune_start == kAutomatic ? kFirstPruning + options.local_after : options.prune_start;
  const int64_t half = options.local_after + (length.exchanges - options.local_after) / 2;
  length.prune_end = options.prune_end == kAutomatic ? std::max(length.prune_start, half) : options.prune_end;
  length.freeze_after = options.freeze_after == kAutomatic ? length.prune_end : options.freeze_after;
}

}  // namespace

int64_t steps_of(const char* option, double epochs, const RunLength& length) {
  const int64_t steps = rounded_steps_of(option, epochs, length);
  if (epochs == 0 || steps > 0) return steps;
  throw std::invalid_argument(fmt::format("{}: got {}, which is less than half a step; wanted {:.3g} or more", option,
                                          epochs, 1 / static_cast<double>(length.steps_per_epoch)));
}

const Phase& RunLength::phase_of(int64_t step) const {
  for (const Phase& phase : phases) {
    if (step <= phase.end()) return phase;
  }
  return phases.back();
}

RunLength run_length(const TrainOptions& options, int64_t training_images) {
  RunLength length;
  const int ranks = shape_of(options).world_size();
  if (options.batch_size > training_images / ranks) {
    throw std::invalid_argument(
        fmt::format("`batch_size`: got {}, wanted at most {}: every step takes one batch for each of {} ranks, the "
                    "training set has {} images",
                    options.batch_size, training_images / ranks, ranks, training_images));
  }
  length.images_per_step = options.batch_size * ranks;
  length.steps_per_epoch = training_images / length.images_per_step;
  length.phases = phases_of(options, length);
  for (const Phase& phase : length.phases) {
    if (phase.warmup >= phase.steps) {
      throw std::invalid_argument(fmt::format("{}: got {} steps of warm-up, the run has {}",
                                              options.warmup_steps > 0 ? "`warmup_steps`" : "`warmup_epochs`",
                                              phase.warmup, phase.steps));
    }
    if (!phase.milestones.empty() && phase.milestones.back() >= phase.steps) {
      throw std::invalid_argument(
          fmt::format("`lr_milestones`: got {} epochs, {} steps, which the training of {} steps never passes",
                      options.milestones.back(), phase.milestones.back(), phase.steps));
    }
  }
  length.steps = length.phases.back().end();
  set_exchanges(length, options);
  return length;
}

RunLength length_of_steps(const TrainOptions& options, int64_t steps) {
  RunLength length{.steps_per_epoch = 1, .steps = steps, .phases = {{.steps = steps}}};
  set_exchanges(length, options);
  return length;
}

double learning_rate_at(const Phase& phase, int64_t step) {
  const int64_t own = step - phase.begin;
  if (own <= phase.warmup) {
    return phase.learning_rate * static_cast<double>(own) / static_cast<double>(phase.warmup + 1);
  }
  const double done = static_cast<double>(own - 1 - phase.warmup) / static_cast<double>(phase.steps - phase.warmup);
  switch (phase.schedule) {
    case LearningRateSchedule::kCosine:
      return phase.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
    case LearningRateSchedule::kStep:
      return phase.learning_rate * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
    case LearningRateSchedule::kConstant:
      return phase.learning_rate;
    case LearningRateSchedule::kMilestones: {
      const auto passed = std::upper_bound(phase.milestones.begin(), phase.milestones.end(), own - 1);
      return phase.learning_rate *
             std::pow(phase.milestone_factor, static_cast<double>(passed - phase.milestones.begin()));
    }
  }
  return phase.learning_rate;
}

std::function<double(int64_t)> learning_rates(const RunLength& length) {
  return [length](int64_t step) { return learning_rate_at(length.phase_of(step), step); };
}

}  // namespace prunex::train
