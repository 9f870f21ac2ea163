// What ranks and chooses the units that masks keep.
#pragma once

#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/group.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/train/options.h"

namespace prunex::train {

/// `mask_importance`: the word for the squared norm of all of a unit's weights.
inline constexpr char kNormImportance[] = "norm";
/// It, and those of prune::importance_names().
std::vector<std::string> mask_importance_names();

/// Null for kNormImportance, or without groups. Criteria that ask data look at the first `importance_samples` of
/// `training`, shared among the ranks of a node, with batch norm's statistics estimated on `calibration`. Throws
/// std::invalid_argument where a group cannot be ranked so.
strategies::UnitScorer mask_scorer(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const program::Model& model, const data::Dataset& training,
                                   const data::Dataset& calibration);

/// Null where every group keeps its own share. Else plans as `prunex prune` makes them, among `groups` of the graph,
/// which stay comparable through `mask_importance`'s normalizer (the mean of a group where units are ranked by norm).
/// On the way there the budget shrinks with the schedule; masks are planned anew from the whole network each time, so
/// units may come back. std::invalid_argument for a budget out of reach, or groups that cannot be planned.
strategies::UnitSelector mask_plan(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const channels::Analysis& analysis);

/// Units that masks prune, what ranks them and what chooses among them.
struct MaskedUnits {
  std::vector<sparsity::Group> groups;
  strategies::UnitScorer score;
  strategies::UnitSelector select;
};
/// By mask_scorer() and mask_plan(). `analysis` is of the model.
MaskedUnits masked_units(const TrainOptions& options, std::vector<sparsity::Group> groups, const program::Model& model,
                         const channels::Analysis& analysis, const data::Dataset& training,
                         const data::Dataset& calibration);

}  // namespace prunex::train
