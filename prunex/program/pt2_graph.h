// The graph inside a .pt2 file: models/model.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "prunex/program/program.h"

namespace prunex::program {

/// Reads the document without its tensors: constants and aliases are left empty. Throws std::invalid_argument that
/// names what is not supported.
Graph read_graph(const nlohmann::json& document);

/// The document for a graph with its weights. Throws std::invalid_argument where they disagree.
nlohmann::ordered_json write_graph(const Graph& graph, const Weights& weights);

/// The "tensor_meta" of a stored tensor, row-major whatever its memory layout is.
nlohmann::ordered_json write_tensor_meta(const at::Tensor& tensor);

}  // namespace prunex::program
