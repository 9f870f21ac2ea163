// How the training images of a run are divided among its nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/data/dataset.h"

namespace prunex::data {

struct Partition {
  enum class Kind {
    kIid,        ///< every node has all images: an epoch's order deals them out anew
    kDirichlet,  ///< a class' shares of the nodes are drawn from a symmetric Dirichlet distribution
    kClasses,    ///< every node has so many classes
  };
  Kind kind = Kind::kIid;
  double concentration = 1;  ///< of kDirichlet; small: nodes share few classes
  int64_t classes = 1;       ///< of kClasses
};

/// "iid", "dirichlet:A" with A from 0.01 to 1e6, or "classes:N" with N of 1 or more; nothing for other words.
std::optional<Partition> parse_partition(const std::string& word);
std::string to_string(const Partition& partition);

/// By node the numbers of its images, in ascending order; every image is on one node. Depends on labels and seed alone.
///
/// dirichlet:A: class by class the images, in an order of their own, are cut at the rounded running sums of shares that
/// are drawn for it (arXiv 1905.12022). classes:N: of C classes node i has (i N + j) mod C, j = 0 … N - 1; the nodes
/// that have a class get equal parts of its images, in that order. Throws std::invalid_argument that names `partition`
/// for more classes than there are, or nodes that do not cover them all.
std::vector<std::vector<int64_t>> divide(const Dataset& dataset, const Partition& partition, int64_t nodes,
                                         uint64_t seed);

/// Of the orders in which a node walks through its images.
uint64_t seed_of_node(uint64_t seed, int64_t node);

/// Of all images, or of these, by class.
std::vector<int64_t> class_counts(const Dataset& dataset);
std::vector<int64_t> class_counts(const Dataset& dataset, const std::vector<int64_t>& images);

}  // namespace prunex::data
