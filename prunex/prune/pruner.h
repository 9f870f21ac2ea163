// Prunes a model: scores, plans, cuts; and what masks leave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/program/program.h"
#include "prunex/prune/importance.h"
#include "prunex/prune/plan.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::prune {

/// What became of a group.
struct Decision {
  std::string group;
  channels::GroupKind kind = channels::GroupKind::kInner;
  std::vector<std::string> layers;  ///< whose outputs it prunes
  int64_t units = 0;                ///< before
  int64_t asked = 0;                ///< units to keep, as target and ranking say
  int64_t kept = 0;
  std::string reason;   ///< why other units than asked are kept, or why none could go
  std::string inexact;  ///< which statistics change with its units; empty: none
};

/// What became of a layer's output channels.
struct LayerWidth {
  std::string layer;
  int64_t before = 0, asked = 0, done = 0;  ///< channels; asked and done: to keep, and kept
  std::string reason;                       ///< of the first of its groups that has one
};

struct Size {
  int64_t parameters = 0;
  int64_t macs = 0;  ///< of one image
};

struct Pruned {
  program::Model model;
  sparsity::Cut cut;
  std::vector<Decision> decisions;  ///< all groups of the network, also those that cannot be cut
  std::vector<LayerWidth> layers;   ///< all layers whose channels are in a group, in the model's order
  Size before, after;
};

/// Scores, plans and cuts in one go. `model` stays as it is, also when this throws.
class Pruner {
 public:
  Pruner(const program::Model& model, channels::Analysis analysis, const PlanOptions& options);
  Pruner(const program::Model& model, const PlanOptions& options) : Pruner(model, model.program, options) {}

  const Planner& planner() const { return planner_; }
  /// The whole one.
  const program::Model& model() const { return model_; }
  /// Of the units that no step has removed.
  const sparsity::Masks& alive() const { return plan_.masks; }

  /// Goes `steps` times a part of the way to the target, from where the pruner is; units are scored anew in each step.
  /// All steps or, if it throws, none. Evidence of an importance is of the alive units and not measured again: with it
  /// more than one step is a std::invalid_argument, and step() takes the scores of evidence that is.
  void prune(const Importance& importance, const Target& target, int64_t steps = 1);

  /// One step, so much of the way to the target. `scores` are of alive() units, in their order.
  void step(const std::vector<UnitScores>& scores, const Target& target, double progress);

  sparsity::Cut cut() const;
  /// The model that is left now, checked by cut_program(). Tensors that lose nothing are shared with the whole one.
  Pruned result() const;
  std::vector<Decision> decisions() const;
  std::vector<LayerWidth> layers() const;

 private:
  void adopt(Plan plan, const std::vector<UnitScores>& scores);

  program::Model model_;
  channels::Analysis analysis_;
  PlanOptions options_;
  Planner planner_;
  Plan plan_;
  std::vector<bool> scored_;  // groups that something had a say in
};

// What masks leave: groups and weights for scoring them again, units that are of no use any more.

struct Remaining {
  std::vector<sparsity::Group> groups;  ///< of the same names and order, with the units and positions that are left
  Weights weights;
};

/// Slices of tensors that `weights` lacks are left out. Tensors that lose nothing are shared with `weights`.
Remaining remaining(const std::vector<sparsity::Group>& groups, const sparsity::Masks& alive, const Weights& weights);

/// The groups as they lie in what `cut` leaves; `alive` has the units that it leaves.
std::vector<sparsity::Group> remaining_groups(const std::vector<sparsity::Group>& groups, const sparsity::Masks& alive,
                                              const sparsity::Cut& cut);

/// Scores of the alive units among themselves; those of dead units are 0. `weights` are whole, or condensed.
std::vector<UnitScores> score_alive(const Importance& importance, const std::vector<sparsity::Group>& groups,
                                    const sparsity::Masks& alive, const Weights& weights);

/// The same of weights and evidence that are cut already: from the order of what is left to that of all units.
std::vector<UnitScores> spread(const std::vector<UnitScores>& scores, const std::vector<sparsity::Group>& groups,
                               const sparsity::Masks& alive);

/// The units of an analysis' removable groups that something still reads: a unit is dead when every weight that takes
/// it as an input is masked; where no weight does, when all that makes it is. Removing dead units changes no output. At
/// least one unit of a group stays alive.
sparsity::Masks units_read(const channels::Analysis& analysis, const sparsity::Supports& supports);

/// What masks of `groups`, of training, allow to remove from the analysis' network of these weights.
sparsity::Cut removable_cut(const channels::Analysis& analysis, const std::vector<sparsity::Group>& groups,
                            const sparsity::Masks& masks, const Weights& weights);

/// Alive: the units with a weight of at least `threshold` in magnitude, in the layers that make them or that read them
/// (arXiv 1901.09290), and the largest unit of every group. Norms do not count: what follows makes up for their scale.
/// A group on no layer's weights stays whole, and so do those that `ignore` names as LimitOptions have it.
sparsity::Masks units_above(const channels::Analysis& analysis, const Weights& weights, double threshold,
                            const std::vector<std::string>& ignore = {});

}  // namespace prunex::prune
