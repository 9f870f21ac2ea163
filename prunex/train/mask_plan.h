// Masks that meet one budget for the whole network: --keep macs=R, --scope, and what layers are spared.
#pragma once

#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/sparsity/group.h"
#include "prunex/strategies/mask_consensus.h"
#include "prunex/train/options.h"

namespace prunex::train {

/// Null where every group keeps its own share. Else plans as `prunex prune` makes them, among `groups` of the graph,
/// which stay comparable through --mask-importance's normalizer (the mean of a group where units are ranked by norm).
/// On the way there the budget shrinks with the schedule; masks are planned anew from the whole network each time, so
/// units may come back. std::invalid_argument for a budget out of reach, or groups that cannot be planned.
strategies::UnitSelector mask_plan(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const channels::Analysis& analysis);

}  // namespace prunex::train
