// Nodes that read files of their own: {node} in the names of folders and files is the node's number.
#pragma once

#include <optional>

#include "prunex/comm/hierarchy.h"
#include "prunex/train/division.h"
#include "prunex/train/images.h"
#include "prunex/train/options.h"

namespace prunex::train {

bool has_files_by_node(const data::DataOptions& options);

struct NodeFiles {
  RunImages images;     ///< of this rank's node; without ranks, of node 0
  Division division{};  ///< without image numbers: all of a set are its node's
};

/// Reads the node's files, of which all nodes must have equal image sizes and the same test images. There are as many
/// classes as on any node; images are normalised by node 0's numbers. With ranks collective, else every node's files
/// are read. Throws std::invalid_argument that names a node that differs from node 0, or has fewer images than its
/// ranks take in a step.
NodeFiles load_by_node(const TrainOptions& options, const std::optional<Carried>& carried, comm::Hierarchy* ranks);

}  // namespace prunex::train
