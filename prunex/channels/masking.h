// Whether masks of a group, zeros in its parameters, do what a cut of it does.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/channels/analysis.h"

namespace prunex::channels {

/// Says so in the prunable groups: `unmaskable`, `summed`. `removable_of`: their position by the root of each set of
/// units; -1: none.
void note_masking(const Axes& axes, const WeightRoles& roles, const std::vector<int32_t>& removable_of,
                  std::vector<DependencyGroup>& groups);

}  // namespace prunex::channels
