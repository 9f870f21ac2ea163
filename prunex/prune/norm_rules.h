// Rules of normalisations.
#pragma once

#include "prunex/prune/operators.h"

namespace prunex::prune {

/// batch_norm and instance_norm: weight, bias and statistics follow the channels.
void batch_norm_rule(Axes& axes, const program::Node& node);

/// layer_norm and rms_norm take statistics over their axes.
void layer_norm_rule(Axes& axes, const program::Node& node);

/// Whole groups go, which leaves the others exactly as they were; if statistics may change: equal positions of all.
void group_norm_rule(Axes& axes, const program::Node& node);

}  // namespace prunex::prune
