// What a run leaves: the trained model in files that other tools open, and its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/data/description.h"
#include "prunex/program/program.h"
#include "prunex/prune/pruner.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"

namespace prunex::train {

/// Writes DIR/model.pt2 (eval form) and DIR/model.safetensors, both with the description if there is one.
void write_product(const std::string& directory, const program::Model& model,
                   const std::optional<data::Description>& description);

/// Reads DIR/model.pt2 back.
program::Model read_product(const std::string& directory);

/// Parameters, and multiply-accumulates of one image in convolutions and linear layers.
prune::Size size_of(const program::Graph& graph, const Weights& weights);

struct Structure {
  std::string model;           ///< `model` of the original network: a built-in name or a file
  std::vector<int64_t> input;  ///< 1 x C x H x W
  sparsity::Cut cut;
  channels::GroupOptions groups{};  ///< with which the network was analysed
};

/// 1 x C x H x W of a program's images.
std::vector<int64_t> input_shape(const program::Graph& graph);

/// {"model", "input": [1, C, H, W], "heads", "statistics", "tensors": {NAME: {"shape": [original], "kept": {"0":
/// [positions], …}}}, "groups": [{"name", "size", "kept": [units], "at": {"tensor", "axis", "index"}}]}: an axis that
/// kept everything, the index of a slice that is the identity, and `heads` and `statistics` that are false are left
/// out.
std::string structure_json(const Structure& structure);

/// The inverse. Anything else throws std::invalid_argument.
Structure parse_structure(const std::string& json);

/// Writes DIR/structure.json.
void write_structure(const std::string& directory, const Structure& structure);

/// Units that masks pruned and the cut could not remove.
struct NotRemoved {
  std::string group;
  int64_t units = 0;   ///< that stay, as zeros
  std::string reason;  ///< why they cannot be removed
};

/// Of every group that has some. Coupled groups have none: all their units can be removed.
std::vector<NotRemoved> not_removed(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks,
                                    const sparsity::Cut& cut);

}  // namespace prunex::train
