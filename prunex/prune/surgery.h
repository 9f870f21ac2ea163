// Makes the small program that a cut leaves.
#pragma once

#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"

namespace prunex::prune {

/// The graph with the recorded shapes that are left and every constant that holds a width rewritten: groups of
/// convolutions, sizes of views, ranges of slices and splits. The cut must remove whole units of dependency groups that
/// are prunable, everywhere they lie; any other throws c10::Error that says where and why. Takes milliseconds.
program::Graph cut_graph(const program::Graph& graph, const sparsity::Cut& cut);

/// The program of cut_graph(), checked by check_shapes(). Run it with weights after sparsity::apply_cut().
program::Program cut_program(const program::Program& program, const sparsity::Cut& cut);

/// Runs the program in eval mode on two images of zeros, with weights of zeros: every value must come out in its
/// recorded shape. Throws c10::Error that names the value.
void check_shapes(const program::Program& program);

}  // namespace prunex::prune
