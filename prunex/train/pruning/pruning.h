// What makes a network smaller while it trains: masks, cuts by importance (`prune_to`, `prune_below`), regularisers.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/prune/plan.h"
#include "prunex/prune/regularizer.h"
#include "prunex/sparsity/cut.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/train/evaluator.h"
#include "prunex/train/network.h"
#include "prunex/train/options.h"
#include "prunex/train/pruning/by_importance.h"
#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/run/metrics.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// Depends on weights that all ranks share, on options and, for some criteria, on the same images: every rank cuts the
/// same.
class ScheduledPruning {
 public:
  /// Options that the network cannot follow are std::invalid_argument.
  ScheduledPruning(const TrainOptions& options, const RunLength& length, const channels::Analysis& whole);

  /// Whether the network is cut after this exchange, 0 being before the first step; whether that is the first or the
  /// last cut to the target.
  bool due(int64_t exchange) const;
  bool is_first(int64_t exchange) const { return target_ && exchange == first_; }
  bool is_last(int64_t exchange) const { return target_ && due(exchange) && exchange == last(); }
  /// Nothing more will be cut.
  bool is_over(int64_t exchange) const { return target_ && exchange >= last(); }
  bool has_target() const { return target_.has_value(); }
  /// Exchanges of the first and the last cut to a target.
  int64_t first() const { return first_; }
  int64_t last() const { return first_ + (steps_together_ ? 0 : (options_.steps - 1) * options_.every); }

  /// What goes of `now`, which `analysis` is of: the network as the cuts before, together `total`, have left it.
  /// Collective.
  sparsity::Cut cut(int64_t exchange, const program::Model& now, const channels::Analysis& analysis,
                    const std::optional<sparsity::Cut>& total, const ImageSource& images,
                    comm::Communicator& world) const;

 private:
  sparsity::Cut cut_at_once(const program::Model& now, const channels::Analysis& analysis, const ImageSource& images,
                            comm::Communicator& world) const;
  sparsity::Cut cut_further(double progress, const program::Model& now, const std::optional<sparsity::Cut>& total,
                            const ImageSource& images, comm::Communicator& world) const;

  ScheduledPruningOptions options_;
  uint64_t seed_;
  bool steps_together_;
  int64_t first_ = 0;  // exchange
  std::optional<prune::Target> target_;
  std::optional<prune::Planner> whole_;
};

/// The exchange after which the first cut to a target comes: when all phases before fine-tuning are over, 0 if there
/// are none, or after `prune_at` of the run.
int64_t first_cut(const TrainOptions& options, const RunLength& length);

class SparseTraining {
 public:
  /// `classes`: of the data; what an untrained network loses follows from it.
  SparseTraining(const TrainOptions& options, const RunLength& length, const channels::Analysis& analysis,
                 int64_t classes);

  /// Between backward and the optimizer of a step.
  void add_to_gradients(TensorDict& params, int64_t step) const;

  /// After step 0 and after every exchange: new coefficients from the weights that all ranks share, if a step before
  /// the next exchange will want them.
  void refresh(const Weights& weights, int64_t exchange, int64_t step);

  /// The network was cut, and this is its graph now.
  void cut(const channels::Analysis& analysis, const sparsity::Cut& cut) { regularizer_.cut(analysis, cut); }

  /// Adds to a checkpoint what the next steps depend on; finds it there.
  void save(TensorDict& state) const;
  void load(const TensorDict& state);

 private:
  bool acts_in(int64_t step) const;

  SparseOptions options_;
  int64_t local_steps_, overlap_;
  RunLength length_;
  double strength_;
  prune::Regularizer regularizer_;
};

/// How a run prunes.
struct PruningPlan {
  MaskedUnits masked;  ///< of the network before any cut
  std::optional<ScheduledPruning> schedule;
  std::optional<SparseTraining> sparse;
};

/// What an exchange takes from the network, before it does.
struct DueCut {
  sparsity::Cut cut = {};              ///< of the network as it is now; may be of nothing
  std::optional<PrunedRecord> record;  ///< with this cut, if there is a target
  double begin = 0;                    ///< Stopwatch::now() when it was looked for
};

/// All of a run's pruning.
class Pruning {
 public:
  /// Borrows all but the options and the plan.
  Pruning(const TrainOptions& options, PruningPlan plan, TrainedNetwork& network, const Evaluator& evaluator,
          const data::Datasets& data)
      : options_(options), plan_(std::move(plan)), network_(network), evaluator_(evaluator), data_(data) {}

  const PruningPlan& plan() const { return plan_; }

  /// Between backward and the optimizer.
  void add_to_gradients(TensorDict& params, int64_t step) const;
  /// What is to be cut after an exchange, if anything is; once before the first step, too. Nothing changes yet, so that
  /// it may be asked for again when a rank was lost. Collective.
  std::optional<DueCut> due_cut(const strategies::Exchange& exchange, const strategies::Strategy& strategy) const;
  /// Cuts it; from here on everything is smaller. Not collective.
  void cut(const DueCut& due, strategies::Strategy& strategy);
  /// After every exchange and its cut, and once before the first step: renews what depends on weights.
  void refresh(int64_t exchange, int64_t step, const strategies::Strategy& strategy);
  bool masks_are_final(const strategies::Exchange& exchange) const {
    return plan_.masked.groups.empty() || exchange.frozen;
  }
  /// No exchange after this one changes the structure.
  bool is_over(const strategies::Exchange& exchange) const;
  /// What a strategy's masks allow to remove from the network as it was before any cut.
  sparsity::Cut removable(const sparsity::Masks& masks) const;
  /// Of the cuts to a target, from the first on.
  const std::optional<PrunedRecord>& record() const { return record_; }

  /// What the next steps depend on.
  void save(Checkpoint& checkpoint) const;
  void load(const Checkpoint& checkpoint, const std::optional<PrunedRecord>& record);

 private:
  DueCut due_by_schedule(int64_t exchange, const strategies::Strategy& strategy) const;
  double accuracy(const program::Model& model) const;
  double milliseconds(const program::Model& model) const;

  const TrainOptions options_;
  PruningPlan plan_;
  TrainedNetwork& network_;
  const Evaluator& evaluator_;
  const data::Datasets& data_;
  std::optional<PrunedRecord> record_;
};

}  // namespace prunex::train
