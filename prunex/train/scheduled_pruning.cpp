#include "prunex/train/scheduled_pruning.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/prune/pruner.h"
#include "prunex/prune/remaining.h"
#include "prunex/sparsity/projection.h"
#include "prunex/train/data_pruning.h"

namespace prunex::train {
namespace {

std::pair<std::string, double> parse_target(const std::string& text) {
  const auto target = prune::parse_assignment(text);
  if (target) return *target;
  throw std::invalid_argument(
      fmt::format("--prune-to: got '{}', wanted ratio=R, macs=M, parameters=P or speed-up=X", text));
}

prune::ImportanceOptions importance_of(const ScheduledPruningOptions& options, uint64_t seed) {
  prune::ImportanceOptions importance = prune::importance_named(options.importance);
  if (!options.normalizer.empty()) importance.normalizer = prune::normalizer_named(options.normalizer);
  importance.seed = seed;
  return importance;
}

/// The units of the whole network's groups that a cut has left.
sparsity::Masks alive_after(const std::optional<sparsity::Cut>& cut, const std::vector<sparsity::Group>& groups) {
  sparsity::Masks alive = sparsity::full_masks(groups);
  if (!cut) return alive;
  for (const auto& group : cut->groups) {
    at::Tensor* mask = alive.find(group.name);
    if (mask == nullptr) continue;
    mask->zero_().index_fill_(0, at::tensor(group.kept, at::kLong), true);
  }
  return alive;
}

std::vector<prune::UnitScores> equal_scores(const std::vector<sparsity::Group>& groups) {
  std::vector<prune::UnitScores> equal;
  for (const auto& group : groups) equal.emplace_back(group.size, 1.0);
  return equal;
}

}  // namespace

int64_t first_cut(const TrainOptions& options, const RunLength& length) {
  const Phase& last = length.phases.back();
  const bool finetunes = options.finetune.epochs > 0;
  const double step =
      finetunes ? static_cast<double>(last.begin) : options.prune_at * static_cast<double>(length.steps);
  return static_cast<int64_t>(std::ceil(step / static_cast<double>(options.local_steps)));
}

ScheduledPruning::ScheduledPruning(const TrainOptions& options, const RunLength& length,
                                   const channels::Analysis& whole)
    : options_(options.pruning),
      seed_(options.seed),
      steps_together_(options_.every == 0),
      first_(first_cut(options, length)) {
  if (options.round_to != kAutomatic) options_.plan.limits.round_to = options.round_to;
  if (options_.target.empty()) return;
  const auto [name, value] = parse_target(options_.target);
  whole_.emplace(whole, options_.plan);
  target_ = prune::target_named("--prune-to " + name, name, value, *whole_);
  prune::expect_in_reach("--prune-to " + options_.target, *whole_, equal_scores(whole_->groups()), *target_);
  if (last() > length.exchanges) {
    throw std::invalid_argument(fmt::format(
        "--prune-steps: the last of {} cuts would come after exchange {}, the run has {}: fewer steps, a smaller "
        "--prune-every or 0, or more --finetune-epochs",
        options_.steps, last(), length.exchanges));
  }
}

bool ScheduledPruning::due(int64_t exchange) const {
  if (!target_) return options_.below > 0 && exchange > 0 && exchange % options_.every == 0;
  if (exchange < first_ || exchange > last()) return false;
  return steps_together_ || (exchange - first_) % options_.every == 0;
}

sparsity::Cut ScheduledPruning::cut(int64_t exchange, const program::Model& now, const channels::Analysis& analysis,
                                    const std::optional<sparsity::Cut>& total, const Images& images,
                                    comm::Communicator& world) const {
  at::NoGradGuard no_grad;
  if (!target_) {
    return sparsity::make_cut(analysis.removable(), prune::units_above(analysis, now.weights, options_.below),
                              sparsity::shapes_of(now.weights));
  }
  if (steps_together_) return cut_at_once(now, analysis, images, world);
  const auto step = (exchange - first_) / options_.every + 1;
  return cut_further(static_cast<double>(step) / static_cast<double>(options_.steps), now, total, images, world);
}

sparsity::Cut ScheduledPruning::cut_at_once(const program::Model& now, const channels::Analysis& analysis,
                                            const Images& images, comm::Communicator& world) const {
  prune::Pruner pruner(now, analysis, options_.plan);
  prune_by_importance(pruner, importance_of(options_, seed_), *target_, options_.steps, images, world);
  return pruner.cut();
}

/// So much of the way from the whole network to the target: shares, limits and costs count there.
sparsity::Cut ScheduledPruning::cut_further(double progress, const program::Model& now,
                                            const std::optional<sparsity::Cut>& total, const Images& images,
                                            comm::Communicator& world) const {
  const auto& groups = whole_->groups();
  const auto alive = alive_after(total, groups);
  const auto rest = total ? prune::remaining_groups(groups, alive, *total) : groups;
  const auto scores = score_by_importance(importance_of(options_, seed_), rest, now, images, world);
  const auto plan = whole_->plan(alive, prune::spread(scores, groups, alive), *target_, progress);
  sparsity::Masks masks;
  for (const auto& group : groups) masks.insert(group.name, plan.masks[group.name].masked_select(alive[group.name]));
  return sparsity::make_cut(rest, masks, sparsity::shapes_of(now.weights));
}

}  // namespace prunex::train
