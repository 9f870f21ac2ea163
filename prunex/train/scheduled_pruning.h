// Cuts by importance while training goes on: --prune-to and --prune-below.
#pragma once

#include <cstdint>
#include <optional>

#include "prunex/channels/analysis.h"
#include "prunex/comm/communicator.h"
#include "prunex/program/program.h"
#include "prunex/prune/plan.h"
#include "prunex/sparsity/cut.h"
#include "prunex/train/data_pruning.h"
#include "prunex/train/options.h"
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
                    const std::optional<sparsity::Cut>& total, const Images& images, comm::Communicator& world) const;

 private:
  sparsity::Cut cut_at_once(const program::Model& now, const channels::Analysis& analysis, const Images& images,
                            comm::Communicator& world) const;
  sparsity::Cut cut_further(double progress, const program::Model& now, const std::optional<sparsity::Cut>& total,
                            const Images& images, comm::Communicator& world) const;

  ScheduledPruningOptions options_;
  uint64_t seed_;
  bool steps_together_;
  int64_t first_ = 0;  // exchange
  std::optional<prune::Target> target_;
  std::optional<prune::Planner> whole_;
};

/// The exchange after which the first cut to a target comes: when all phases before fine-tuning are over, 0 if there
/// are none, or after --prune-at of the run.
int64_t first_cut(const TrainOptions& options, const RunLength& length);

}  // namespace prunex::train
