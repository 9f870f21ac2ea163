#include "prunex/train/pruning.h"

#include <ATen/ATen.h>
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
#include "prunex/train/data_pruning.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/product.h"

namespace prunex::train {
namespace {

std::pair<std::string, double> parse_target(const std::string& text) {
  const auto target = prune::parse_assignment(text);
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
  target_ = prune::target_named("`prune_to` " + name, name, value, *whole_);
  prune::expect_in_reach("`prune_to` " + options_.target, *whole_, equal_scores(whole_->groups()), *target_);
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

namespace {

const std::string kRoom = "sparse/";  // in checkpoints

prune::RegularizerOptions regularizer_options(const SparseOptions& sparse, int64_t classes) {
  const auto penalty = prune::penalty_named(sparse.penalty);
  return {.penalty = penalty,
          .strength = sparse.strength.value_or(prune::usual_strength(penalty)),
          .growth = sparse.growth,
          .loss_share = sparse.loss_share,
          .first_loss = std::log(static_cast<double>(classes))};
}

}  // namespace

SparseTraining::SparseTraining(const TrainOptions& options, const RunLength& length, const channels::Analysis& analysis,
                               int64_t classes)
    : options_(options.sparse),
      local_steps_(options.local_steps),
      length_(length),
      regularizer_(regularizer_options(options.sparse, classes), analysis) {}

void SparseTraining::save(TensorDict& state) const {
  for (const auto& item : regularizer_.state()) state.insert(kRoom + item.key(), item.value());
}

void SparseTraining::load(const TensorDict& state) {
  TensorDict own;
  for (const auto& item : state) {
    if (item.key().starts_with(kRoom)) own.insert(item.key().substr(kRoom.size()), item.value());
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
  regularizer_.add_to_gradients(params, warmup > 0 ? std::min(1.0, in_phase / warmup) : 1);
}

void SparseTraining::refresh(const Weights& weights, int64_t exchange, int64_t step) {
  const int64_t last = std::min(step + local_steps_, length_.steps);
  const bool due = exchange % options_.refresh_every == 0 || !regularizer_.has_coefficients();
  if (!due || (!acts_in(step + 1) && !acts_in(last))) return;
  const int64_t in_phase = std::max<int64_t>(0, step - length_.phase_of(last).begin);
  const int64_t passed = std::min(in_phase, local_steps_ * options_.refresh_every);
  regularizer_.refresh(weights, static_cast<double>(passed) / static_cast<double>(length_.steps_per_epoch));
}

namespace {

constexpr int64_t kTimedImages = 128;

}  // namespace

void Pruning::add_to_gradients(TensorDict& params, int64_t step) const {
  if (plan_.sparse) plan_.sparse->add_to_gradients(params, step);
}

std::optional<sparsity::Cut> Pruning::after_exchange(const strategies::Exchange& exchange, int64_t step,
                                                     strategies::Strategy& strategy) {
  const bool by_masks = exchange.frozen && options_.shrink && !network_.total() && !plan_.schedule;
  const bool due = plan_.schedule && plan_.schedule->due(exchange.index);
  std::optional<sparsity::Cut> lost;
  if (by_masks) {
    lost = removable(strategy.masks());
    cut(*lost, strategy);
  } else if (due) {
    lost = cut_on_schedule(exchange.index, strategy);
  }
  if (plan_.sparse) plan_.sparse->refresh(strategy.product(), exchange.index, step);
  return lost;
}

bool Pruning::is_over(const strategies::Exchange& exchange) const {
  return masks_are_final(exchange) && (!plan_.schedule || plan_.schedule->is_over(exchange.index - 1));
}

sparsity::Cut Pruning::removable(const sparsity::Masks& masks) const {
  return prune::removable_cut(network_.analysis(), plan_.groups, masks, network_.replica().weights);
}

/// From here on everything is smaller.
void Pruning::cut(const sparsity::Cut& cut, strategies::Strategy& strategy) {
  if (!options_.elastic) check_agreement(cut, evaluator_.world());  // else the masks' hashes agreed
  network_.cut(cut);
  if (cut.empty()) return;
  strategy.cut(cut, network_.replica());
  if (plan_.sparse) plan_.sparse->cut(network_.analysis(), cut);
}

double Pruning::milliseconds(const Weights& weights) const {
  return milliseconds_per_batch(network_.program(), weights, data_.test, kTimedImages);
}

sparsity::Cut Pruning::cut_on_schedule(int64_t exchange, strategies::Strategy& strategy) {
  const Weights before = plan_.schedule->has_target() ? evaluator_.product(strategy) : strategy.product();
  if (plan_.schedule->is_first(exchange)) {
    const Size& size = network_.size();
    record_ = {.parameters_before = size.parameters,
               .macs_before = size.macs,
               .accuracy_before = evaluator_.score(before, data_.test).accuracy,
               .milliseconds_before = milliseconds(before)};
  }
  const auto images = [&] { return evidence_images(data_.train, options_.pruning.importance_samples); };
  const sparsity::Cut step = plan_.schedule->cut(exchange, {network_.program(), before}, network_.analysis(),
                                                 network_.total(), images, evaluator_.world());
  cut(step, strategy);
  if (!plan_.schedule->is_last(exchange)) return step;
  Weights after = before;
  sparsity::apply_cut(after, step);
  const Size& size = network_.size();
  record_->exchange = exchange;
  record_->parameters_after = size.parameters;
  record_->macs_after = size.macs;
  record_->accuracy_after = evaluator_.score(after, data_.test).accuracy;
  record_->accuracy_after_statistics = evaluator_.score(evaluator_.product(strategy), data_.test).accuracy;
  record_->milliseconds_after = milliseconds(after);
  return step;
}

void Pruning::save(Checkpoint& checkpoint) const {
  if (const auto& total = network_.total()) {
    checkpoint.structure = structure_json({options_.model, input_shape(network_.graph()), *total});
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
