// Costs of a program, read from its graph.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::program {

/// More than any call has, for all its images: sums of them do not overflow.
inline constexpr int64_t kMostMacs = int64_t{1} << 44;

/// An axis of a value whose extent a count grows with.
struct AxisOf {
  ValueId value = kNoValue;
  size_t axis = 0;
};

using AxisList = std::vector<AxisOf>;
/// All axes of a value from `first` on. Throws std::out_of_range for kNoValue.
AxisList axes_of(const Graph& graph, ValueId value, size_t first = 0);
AxisList operator+(AxisList axes, const AxisList& more);

/// A sum of products of extents.
using AxisProducts = std::vector<AxisList>;

/// What a call costs for graph.images(); empty if it multiplies nothing.
AxisProducts mac_products(const Graph& graph, const Node& node);

/// Whether a call is a convolution or a linear layer, not a product of activations.
bool is_layer(const Node& node);

/// The calls whose multiply-accumulates count: convolutions, linear layers, and other products with parameters or what
/// is made of them alone; not those of activations.
std::vector<const Node*> counted_calls(const Graph& graph);

/// Multiply-accumulates of one image in these.
int64_t macs(const Graph& graph);

/// Trainable numbers.
int64_t parameter_count(const Weights& weights);

}  // namespace prunex::program
