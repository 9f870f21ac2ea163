// What a run leaves: the trained model in files that other tools open, and its size.
#pragma once

#include <string>

#include "prunex/program/program.h"
#include "prunex/sparsity/projection.h"

namespace prunex::train {

/// Writes DIR/model.pt2 (eval form) and DIR/model.safetensors.
void write_product(const std::string& directory, const program::Program& program, const Weights& weights);

/// Reads DIR/model.pt2 back.
program::Model read_product(const std::string& directory);

/// Parameters and multiply-accumulates of one image; of the whole program, or of what supports leave of its weights.
struct Size {
  int64_t parameters = 0;
  int64_t macs = 0;
};
Size dense_size(const program::Graph& graph, const Weights& weights);
Size alive_size(const program::Graph& graph, const Weights& weights, const sparsity::Supports& supports);

}  // namespace prunex::train
