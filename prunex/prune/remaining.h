// What masks leave: groups and weights for scoring them again, units that are of no use any more.
#pragma once

#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/prune/importance.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::prune {

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
/// it as an input is masked. Removing dead units changes no output. At least one unit of a group stays alive.
sparsity::Masks units_read(const channels::Analysis& analysis, const sparsity::Supports& supports);

/// Alive: the units with a weight of at least `threshold` in magnitude, in the layers that make them or that read them
/// (arXiv 1901.09290), and the largest unit of every group. Norms do not count: what follows makes up for their scale.
/// A group on no layer's weights stays whole.
sparsity::Masks units_above(const channels::Analysis& analysis, const Weights& weights, double threshold);

}  // namespace prunex::prune
