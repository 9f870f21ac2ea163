// Costs of a program, read from its graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::program {

/// An axis of a value whose extent a count grows with.
struct AxisOf {
  ValueId value = kNoValue;
  size_t axis = 0;
};

/// What a call costs per image: the sum of these products of extents; empty if it multiplies nothing.
std::vector<std::vector<AxisOf>> mac_products(const Graph& graph, const Node& node);

/// All that multiply anything.
std::vector<std::string> operations_with_macs();

/// Whether a call is a convolution or a linear layer, not a product of activations.
bool is_layer(const Node& node);

/// Multiply-accumulates of one image by operation ("aten::conv2d"): convolutions (grouped and transposed too), linear
/// layers, and products of activations (matmul and the like). Operations without any are left out.
std::map<std::string, int64_t> macs_by_operation(const Graph& graph);

/// Multiply-accumulates of one image in convolutions and linear layers.
int64_t macs(const Graph& graph);

/// The same by the state-dict name of the layer's weight; layers that share a weight add up.
std::map<std::string, int64_t> macs_by_weight(const Graph& graph);

/// Trainable numbers.
int64_t parameter_count(const Weights& weights);

}  // namespace prunex::program
