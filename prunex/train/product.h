// What a run leaves: the trained model in files that other tools open, and its size.
#pragma once

#include <optional>
#include <string>

#include "prunex/data/description.h"
#include "prunex/program/program.h"

namespace prunex::train {

/// Writes DIR/model.pt2 (eval form) and DIR/model.safetensors, both with the description if there is one.
void write_product(const std::string& directory, const program::Model& model,
                   const std::optional<data::Description>& description);

/// Reads DIR/model.pt2 back.
program::Model read_product(const std::string& directory);

/// Parameters, and multiply-accumulates of one image in convolutions and linear layers.
struct Size {
  int64_t parameters = 0;
  int64_t macs = 0;
};
Size size_of(const program::Graph& graph, const Weights& weights);

}  // namespace prunex::train
