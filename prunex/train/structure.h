// structure.json: which parts of the original network a compact one consists of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"

namespace prunex::train {

struct Structure {
  std::string model;           ///< --model of the original network: a built-in name or a file
  std::vector<int64_t> input;  ///< 1 x C x H x W
  sparsity::Cut cut;
};

/// 1 x C x H x W of a program's images.
std::vector<int64_t> input_shape(const program::Graph& graph);

/// {"model", "input": [1, C, H, W], "tensors": {NAME: {"shape": [original], "kept": {"0": [positions], …}}},
/// "groups": [{"name", "size", "kept": [units], "at": {"tensor", "axis", "index"}}]}: an axis that kept everything and
/// the index of a slice that is the identity are left out.
std::string structure_json(const Structure& structure);

/// The inverse. Anything else throws std::invalid_argument.
Structure parse_structure(const std::string& json);

/// Writes DIR/structure.json.
void write_structure(const std::string& directory, const Structure& structure);

}  // namespace prunex::train
