// Makes the small program that a cut leaves.
#pragma once

#include "prunex/channels/analysis.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"

namespace prunex::channels {

/// The graph with the recorded shapes that are left and every number in it that is a width rewritten: groups of
/// convolutions, sizes of views, ranges of slices and splits. The cut must remove whole units of dependency groups that
/// are prunable by `analysis`, everywhere they lie; any other throws c10::Error that says where and why. Takes
/// milliseconds.
Graph cut_graph(const Analysis& analysis, const sparsity::Cut& cut);

/// The program of cut_graph(), checked by check_shapes(). Run it with weights after sparsity::apply_cut().
program::Program cut_program(const Analysis& analysis, const sparsity::Cut& cut);

}  // namespace prunex::channels
