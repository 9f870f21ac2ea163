// Nodes that train on different images: which, of which classes, and how the product does on each node's mix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"
#include "prunex/data/dataset.h"
#include "prunex/data/loader.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/images/images.h"
#include "prunex/train/options.h"

namespace prunex::train {

struct Division {
  std::string rule;                                  ///< as `partition` has it
  std::vector<std::vector<int64_t>> images;          ///< by node: their numbers in the training set; empty: all of it
  std::vector<std::vector<int64_t>> class_counts{};  ///< by node and class

  int64_t images_of(size_t node) const;
  int64_t fewest() const;  ///< of a node
  int64_t total() const;
};

/// Throws std::invalid_argument that begins with `what` if a node has fewer images than its ranks take in a step.
void expect_a_step_of_each(const Division& division, const TrainOptions& options, const std::string& what);

/// Nothing where every node has all images. Throws std::invalid_argument that names `partition` if a node has fewer
/// images than its ranks take in a step.
std::optional<Division> divide(const TrainOptions& options, const data::Dataset& training);

/// Of all training images, or of those of this rank's node.
data::Loader make_loader(const TrainOptions& options, const comm::Layout& layout, const data::Dataset& training,
                         const std::optional<Division>& division);

/// "partition classes:5: node 0 has 5000 images of 5 classes, …".
std::string remark_on(const Division& division);

/// sum over classes c of p_c a_c for each node: p_c is the share of c in the node's images, a_c the accuracy on the
/// test images of c that were shown. Classes that are not tested have no say: the other p_c are divided by their sum; 0
/// if none is tested.
std::vector<double> accuracy_by_node(const Division& division, const Evaluation& test);

// Nodes that read files of their own (node_files.cpp): {node} in the names of folders and files is the node's number.

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
