// Shapes that a run has, against those that a graph records.
#pragma once

#include "prunex/program/program.h"

namespace prunex::program {

/// torch.export 2.11 records an axis too many for the last states of recurrent layers, and for all that follows.
bool records_wrong_shapes(const Graph& graph);

/// Records the shapes of all computed values as two runs in eval mode have them, on 2 and 3 images of zeros. Throws
/// std::invalid_argument for a size that is neither fixed nor a multiple of the batch.
Graph with_measured_shapes(Graph graph, const Weights& weights);

/// Runs the program in eval mode on two images of zeros, with weights of zeros: every value that something uses must
/// come out in its recorded shape. Throws c10::Error that names the value.
void check_shapes(const Program& program);

}  // namespace prunex::program
