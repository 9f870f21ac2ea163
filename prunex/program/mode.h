// Training and evaluation as forms of one graph.
#pragma once

#include "prunex/program/program.h"

namespace prunex::program {

/// The graph as it would have been exported in `mode`: the flags of batch norm, instance norm and dropout are set. In
/// kEval, the counting of num_batches_tracked and stochastic depth disappear; kTrain cannot bring them back. Batch norm
/// without running statistics keeps its flag. Ids of values stay; some values of the result are then in no node.
Graph in_mode(const Graph& graph, Mode mode);

}  // namespace prunex::program
