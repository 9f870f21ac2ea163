// How each ATen operation carries channel units from its inputs to its outputs.
#pragma once

#include <string>
#include <vector>

#include "prunex/prune/axes.h"

namespace prunex::prune {

/// Ties the units of the node's inputs and weights and sets those of its outputs; an axis that is not set is fixed.
/// Sound for every argument: what a rule cannot follow it freezes.
using Rule = void (*)(Axes& axes, const program::Node& node);

/// By target ("aten::conv2d"); nullptr: there is none.
Rule find_rule(const std::string& target);

/// All that have one.
std::vector<std::string> operations_with_rules();

/// The axes of a graph after the rules of all its nodes; what the model gives out is frozen. `graph` must outlive it.
/// Where an axis becomes several, those are preferred that leave its units removable and, among them, heads or not, as
/// the options say; then the largest. Goes over the graph at most as often as an axis has parts, and once more.
Axes analyze(const program::Graph& graph, GroupOptions options = {});

}  // namespace prunex::prune
