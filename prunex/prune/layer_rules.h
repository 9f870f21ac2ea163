// Rules of operations with weights.
#pragma once

#include "prunex/prune/operators.h"

namespace prunex::prune {

/// Input channels lie on the columns of the weight, output channels begin at its rows. With groups, the cut must leave
/// equal groups: either whole groups go (depthwise, or a single channel on one side), or equal positions of every
/// group.
void convolution_rule(Axes& axes, const program::Node& node);

/// The same with rows and columns exchanged.
void transposed_convolution_rule(Axes& axes, const program::Node& node);

/// Contracts the last axis.
void linear_rule(Axes& axes, const program::Node& node);

/// Features begin at the columns of the table.
void embedding_rule(Axes& axes, const program::Node& node);

/// lstm, gru and rnn: removes hidden units from all gates, of all layers and directions alike, for these share the
/// tensors of the states.
void recurrent_rule(Axes& axes, const program::Node& node);

/// A weight given by lengths and directions.
void weight_norm_rule(Axes& axes, const program::Node& node);

}  // namespace prunex::prune
