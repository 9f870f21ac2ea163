// Which axes carry units where a reshape makes one axis several.
#pragma once

#include "prunex/channels/axes.h"

namespace prunex::channels {

/// The axes of a graph after the rules of all its nodes; what the model gives out is frozen. Where an axis becomes
/// several, those are preferred that leave its units removable and, among them, heads or not, as the options say; then
/// the largest. Throws std::invalid_argument if recorded shapes do not fit an operation.
Axes label_axes(const Graph& graph, GroupOptions options);

}  // namespace prunex::channels
