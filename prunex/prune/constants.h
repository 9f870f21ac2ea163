// Rewrites the numbers in a node that are widths: what the rules of operators.h carry units through must be rewritten
// here when units go.
#pragma once

#include "prunex/program/program.h"
#include "prunex/prune/remains.h"

namespace prunex::prune {

/// `node` is of the original graph; `graph` holds the shapes that are left. Throws c10::Error that names the node for
/// what cannot be rewritten.
void rewrite_constants(program::Node& node, const program::Graph& graph, const Remains& remains);

}  // namespace prunex::prune
