// The network a run trains, ready for its data.
#pragma once

#include <string>
#include <vector>

#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/train/options.h"

namespace prunex::train {

struct Network {
  program::Model model;
  std::vector<std::string> remarks;  ///< sentences on what of it does not train or cannot be cut (remarks.h)
};

/// The model the options name, with its weights: built in for the data's image size and classes, or read from a .pt2
/// file; then `weights`. Parameters are leaves that require gradients; 4-d ones are channels_last in memory.
/// Throws std::invalid_argument if model, weights and data do not fit together, or nothing can train.
Network load_network(const TrainOptions& options, const data::Dataset& training);

/// Throws std::invalid_argument, naming `source`, unless the program takes one float NCHW image batch of the set's
/// size and returns logits for at least its classes.
void check_fits(const program::Graph& graph, const data::Dataset& dataset, const std::string& source);

/// Copies a safetensors file into the weights; names and shapes must match.
void load_weights(Weights& weights, const std::string& path);

}  // namespace prunex::train
