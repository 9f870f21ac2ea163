// A small network as a graph and as plain calls: conv, batch norm, relu, mean, linear.
#pragma once

#include "prunex/program/program.h"

namespace prunex::program {

/// Adds a value and returns its id.
ValueId add_value(Graph& graph, Value value);

/// Adds a node with one output of the given name and returns the output's id.
ValueId add_node(Graph& graph, const std::string& target, std::vector<Argument> arguments, const std::string& output);

Argument literal(const std::string& name, c10::IValue value);
Argument value(const std::string& name, ValueId id);
Argument values(const std::string& name, std::vector<ValueId> ids);

/// Adds a node whose output is a symbolic integer.
ValueId add_size(Graph& graph, const std::string& target, std::vector<Argument> arguments);

/// A graph with the input x, value 0: rows of `columns` elements, one row per image.
Graph rows_graph(int64_t columns);

/// Input 2x5x5 per image, 4 channels, 3 classes, as exported in train form.
Graph small_graph();
Weights small_weights();
Weights clone(const Weights& weights);

/// The same network by direct calls; changes the buffers as training does.
at::Tensor small_by_hand(const at::Tensor& x, Weights& weights, bool training);

}  // namespace prunex::program
