// Groups and weights that masks leave, for scoring them again.
#pragma once

#include <vector>

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

}  // namespace prunex::prune
