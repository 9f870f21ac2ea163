#include "prunex/train/pruning/pruning.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prunex/prune/pruner.h"
#include "prunex/sparsity/projection.h"
#include "prunex/stopwatch.h"
#include "prunex/text/option.h"
#include "prunex/train/optimizer_choice.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/product.h"
#include "prunex/train/pruning/by_importance.h"
#include "prunex/train/pruning/evidence.h"

namespace prunex::train {
namespace {

std::pair<std::string, double> parse_target(const std::string& text) {
  const auto target = text::assignment_in(text);
  if (target) return *target;
  throw std::invalid_argument(
      fmt::format("`prune_to`: got '{}', wanted ratio=R, macs=M, parameters=P or speed-up=X", text));
}

prune::ImportanceOptions importance_of(const ScheduledPruningOptions& options, uint64_t seed) {
  prune::ImportanceOptions importance = prune::importance_named(options.importance);
  if (!options.normalizer.empty()) importance.normalizer = prune::normalizer_named(options.normalizer);
  importance.seed = seed;
  return importance;
}

}  // namespace

int64_t first_cut(const TrainOptions& options, const RunLength& length) {
  const Phase& last = length.phases.back();
  const bool finetunes = options.finetune.epochs > 0;
  if (finetunes) {  // it may have landed some steps after its own
    return last.begin == 0 ? 0 : std::max<int64_t>(1, last.begin / options.local_steps);
  }
  const double step = options.prune_at * static_cast<double>(length.steps);
  constexpr double kRounding = 1e-9;  // 0.55 x 100 is a little more than 55
  return static_cast<int64_t>(std::ceil(step / static_cast<double>(options.local_steps) - kRounding));
}

ScheduledPruning::ScheduledPruning(const TrainOptions& options, const RunLength& length,
                                   const channels::Analysis& whole)
    : options_(options.pruning),
      seed_(options.seed),
      steps_together_(options_.every == 0),
      first_(first_cut(options, length)) {
  if (options.round_to != kAutomatic) options_.plan.limits.round_to = options.round_to;
  if (options_.below > 0) prune::ignored_groups(whole, options_.plan.limits.ignore);  // refuses unknown names
  if (options_.target.empty()) return;
  const auto [name, value] = parse_target(options_.target);
  whole_.emplace(whole, options_.plan);
  target_ = prune::target_named("`prune_to` " + name, name, value, *whole_);
  prune::expect_in_reach("`prune_to` " + options_.target, *whole_,
                         scores_without_data(importance_of(options_, seed_), whole_->groups(), whole.graph()),
                         *target_);
  if (last() > length.exchanges) {
    throw std::invalid_argument(fmt::format(
        "`prune_steps`: the last of {} cuts would come after exchange {}, the run has {}: fewer steps, a smaller "
        "`prune_every` or 0, or more `finetune_epochs`",
        options_.steps, last(), length.exchanges));
  }
}

bool ScheduledPruning::due(int64_t exchange) const {
  if (!target_) return options_.below > 0 && exchange > 0 && exchange % options_.every == 0;
  if (exchange < first_ || exchange > last()) return false;
  return steps_together_ || (exchange - first_) % options_.every == 0;
}

sparsity::Cut ScheduledPruning::cut(int64_t exchange, const program::Model& now, const channels::Analysis& analysis,
                                    const std::optional<sparsity::Cut>& total, const ImageSource& images,
                                    comm::Communicator& world) const {
  at::NoGradGuard no_grad;
  if (!target_) {
    const auto alive = prune::units_above(analysis, now.weights, options_.below, options_.plan.limits.ignore);
    return sparsity::make_cut(analysis.removable(), alive, sparsity::shapes_of(now.weights));
  }
  if (steps_together_) return cut_at_once(now, analysis, images, world);
  const auto step = (exchange - first_) / options_.every + 1;
  return cut_further(static_cast<double>(step) / static_cast<double>(options_.steps), now, total, images, world);
}

sparsity::Cut ScheduledPruning::cut_at_once(const program::Model& now, const channels::Analysis& analysis,
                                            const ImageSource& images, comm::Communicator& world) const {
  prune::Pruner pruner(now, analysis, options_.plan);
  prune_by_importance(pruner, importance_of(options_, seed_), *target_, options_.steps, images, world);
  return pruner.cut();
}

/// So much of the way from the whole network to the target: shares, limits and costs count there.
sparsity::Cut ScheduledPruning::cut_further(double progress, const program::Model& now,
                                            const std::optional<sparsity::Cut>& total, const ImageSource& images,
                                            comm::Communicator& world) const {
  const auto& groups = whole_->groups();
  const auto alive = total ? sparsity::units_left(groups, *total) : sparsity::full_masks(groups);
  const auto rest = total ? prune::remaining_groups(groups, alive, *total) : groups;
  const auto scores = score_by_importance(importance_of(options_, seed_), rest, now, images, world);
  const auto plan = whole_->plan(alive, prune::spread(scores, groups, alive), *target_, progress);
  sparsity::Masks masks;
  for (const auto& group : groups) masks.insert(group.name, plan.masks[group.name].masked_select(alive[group.name]));
  return sparsity::make_cut(rest, masks, sparsity::shapes_of(now.weights));
}

namespace {

const std::string kPrefix = "sparse/";  // in checkpoints

prune::RegularizerOptions regularizer_options(const TrainOptions& options, int64_t classes) {
  const SparseOptions& sparse = options.sparse;
  const auto penalty = prune::penalty_named(sparse.penalty);
  return {.penalty = penalty,
          .strength = sparse.strength.value_or(prune::usual_strength(penalty)),
          .growth = sparse.growth,
          .loss_share = sparse.loss_share,
          .ignore = options.pruning.plan.limits.ignore,
          .first_loss = std::log(static_cast<double>(classes))};
}

}  // namespace

SparseTraining::SparseTraining(const TrainOptions& options, const RunLength& length, const channels::Analysis& analysis,
                               int64_t classes)
    : options_(options.sparse),
      local_steps_(options.local_steps),
      overlap_(options.overlap),
      length_(length),
      strength_(weight_beside_momentum(options)),
      regularizer_(regularizer_options(options, classes), analysis) {}

void SparseTraining::save(TensorDict& state) const {
  for (const auto& item : regularizer_.state()) state.insert(kPrefix + item.key(), item.value());
}

void SparseTraining::load(const TensorDict& state) {
  TensorDict own;
  for (const auto& item : state) {
    if (item.key().starts_with(kPrefix)) own.insert(item.key().substr(kPrefix.size()), item.value());
  }
  regularizer_.load(own);
}

bool SparseTraining::acts_in(int64_t step) const {
  const std::string_view phase = options_.epochs > 0 ? "sparse" : "train";
  return step <= length_.steps && length_.phase_of(step).name == phase;
}

void SparseTraining::add_to_gradients(TensorDict& params, int64_t step) const {
  if (!acts_in(step)) return;
  const double warmup = options_.warmup_epochs * static_cast<double>(length_.steps_per_epoch);
  const auto in_phase = static_cast<double>(step - length_.phase_of(step).begin);
  regularizer_.add_to_gradients(params, strength_ * (warmup > 0 ? std::min(1.0, in_phase / warmup) : 1));
}

void SparseTraining::refresh(const Weights& weights, int64_t exchange, int64_t step) {
  const bool due = exchange % options_.refresh_every == 0 || !regularizer_.has_coefficients();
  int64_t first = step + 1;  // of the interval's steps, the first in which it acts
  const int64_t last = std::min(step + local_steps_ + overlap_, length_.steps);
  while (first <= last && !acts_in(first)) first = length_.phase_of(first).end() + 1;
  if (!due || first > last) return;
  const int64_t in_phase = std::max<int64_t>(0, step - length_.phase_of(first).begin);
  const int64_t passed = std::min(in_phase, local_steps_ * options_.refresh_every);
  regularizer_.refresh(weights, static_cast<double>(passed) / static_cast<double>(length_.steps_per_epoch));
}

void Pruning::add_to_gradients(TensorDict& params, int64_t step) const {
  if (plan_.sparse) plan_.sparse->add_to_gradients(params, step);
}

std::optional<DueCut> Pruning::due_cut(const strategies::Exchange& exchange,
                                       const strategies::Strategy& strategy) const {
  const double begin = Stopwatch::now();
  const bool by_masks = exchange.frozen && options_.shrink && !network_.total() && !plan_.schedule;
  std::optional<DueCut> due;
  if (by_masks) due = DueCut{removable(strategy.masks()), record_};
  if (plan_.schedule && plan_.schedule->due(exchange.index)) due = due_by_schedule(exchange.index, strategy);
  if (!due) return due;
  due->begin = begin;
  const bool in_transaction = options_.elastic && exchange.index > 0;  // which compares hashes
  if (!in_transaction) check_agreement(due->cut, evaluator_.world());
  return due;
}

void Pruning::cut(const DueCut& due, strategies::Strategy& strategy) {
  record_ = due.record;
  network_.cut(due.cut);
  if (due.cut.empty()) return;
  strategy.cut(due.cut, network_.replica());
  if (plan_.sparse) plan_.sparse->cut(network_.analysis(), due.cut);
}

void Pruning::refresh(int64_t exchange, int64_t step, const strategies::Strategy& strategy) {
  if (plan_.sparse) plan_.sparse->refresh(strategy.product(), exchange, step);
}

bool Pruning::is_over(const strategies::Exchange& exchange) const {
  return masks_are_final(exchange) && (!plan_.schedule || plan_.schedule->is_over(exchange.index - 1));
}

sparsity::Cut Pruning::removable(const sparsity::Masks& masks) const {
  return prune::removable_cut(network_.analysis(), plan_.masked.groups, masks, network_.replica().weights);
}

double Pruning::accuracy(const program::Model& model) const {
  return evaluate(model.program, model.weights, data_.test, evaluator_.world()).accuracy;
}

double Pruning::milliseconds(const program::Model& model) const {
  return milliseconds_per_batch(model.program, model.weights, data_.test, kTimedImages);
}

DueCut Pruning::due_by_schedule(int64_t exchange, const strategies::Strategy& strategy) const {
  const Weights& z = strategy.product();
  const program::Model before{network_.program(), plan_.schedule->has_target() ? evaluator_.product(z) : z};
  DueCut due{.record = record_};
  if (plan_.schedule->is_first(exchange)) {
    const prune::Size& size = network_.size();
    due.record = {.parameters_before = size.parameters,
                  .macs_before = size.macs,
                  .accuracy_before = accuracy(before),
                  .milliseconds_before = milliseconds(before)};
  }
  const auto images = [&] { return evidence_images(data_.train, options_.pruning.importance_samples); };
  due.cut = plan_.schedule->cut(exchange, before, network_.analysis(), network_.total(), images, evaluator_.world());
  if (!plan_.schedule->is_last(exchange)) return due;
  const program::Model after = network_.without(due.cut, before.weights);
  const program::Model estimated = network_.without(due.cut, z);
  const prune::Size size = size_of(after.program.graph(), after.weights);
  due.record->exchange = exchange;
  due.record->parameters_after = size.parameters;
  due.record->macs_after = size.macs;
  due.record->accuracy_after = accuracy(after);
  due.record->accuracy_after_statistics =
      accuracy({estimated.program, evaluator_.with_statistics(estimated.program, estimated.weights)});
  due.record->milliseconds_after = milliseconds(after);
  return due;
}

void Pruning::save(Checkpoint& checkpoint) const {
  if (const auto& total = network_.total()) {
    checkpoint.structure =
        structure_json({options_.model, input_shape(network_.graph()), *total, network_.group_options()});
  }
  if (plan_.sparse) plan_.sparse->save(checkpoint.node);
}

/// The network has been cut as the checkpoint's was.
void Pruning::load(const Checkpoint& checkpoint, const std::optional<PrunedRecord>& record) {
  record_ = record;
  if (!plan_.sparse) return;
  if (network_.is_smaller()) plan_.sparse->cut(network_.analysis(), *network_.total());
  plan_.sparse->load(checkpoint.node);
}

}  // namespace prunex::train
