// Units that masks have made useless.
#pragma once

#include <vector>

#include "prunex/prune/groups.h"
#include "prunex/sparsity/projection.h"
#include "prunex/tensors.h"

namespace prunex::prune {

/// Prunable dependency groups, as groups over parameters and buffers, and the units of each that something still reads:
/// a unit is dead when every weight that takes it as an input is masked. Removing dead units changes no output. At
/// least one unit of a group stays alive.
struct Removable {
  std::vector<sparsity::Group> groups;
  sparsity::Masks alive;
};
Removable removable_units(const std::vector<DependencyGroup>& dependencies, const sparsity::Supports& supports);

}  // namespace prunex::prune
