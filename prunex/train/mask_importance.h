// `mask_importance`: what ranks the units that H-SADMM's masks keep.
#pragma once

#include <string>
#include <vector>

#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/group.h"
#include "prunex/strategies/hsadmm.h"
#include "prunex/train/options.h"

namespace prunex::train {

/// The word for the squared norm of all of a unit's weights.
inline constexpr char kNormImportance[] = "norm";
/// It, and those of prune::importance_names().
std::vector<std::string> mask_importance_names();

/// Null for kNormImportance, or without groups. Criteria that ask data look at the first `importance_samples` of
/// `training`, shared among the ranks of a node, with batch norm's statistics estimated on `calibration`. Throws
/// std::invalid_argument where a group cannot be ranked so.
strategies::UnitScorer mask_scorer(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const program::Model& model, const data::Dataset& training,
                                   const data::Dataset& calibration);

}  // namespace prunex::train
