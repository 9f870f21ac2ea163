// Operations as Torch-Pruning 1.6.1 counts them, for comparisons.
#pragma once

#include "prunex/program/program.h"
#include "prunex/prune/cost.h"

namespace prunex::prune {

/// Of one image: convolutions with their biases (transposed ones per output position), linear layers with their biases
/// once, norms twice their inputs, activation modules their outputs and pooling modules their inputs. Whether a call
/// comes from a module is read from the file's metadata; without it, activations and pools count.
Count torch_pruning_count(const program::Graph& graph, const Widths& widths);

}  // namespace prunex::prune
