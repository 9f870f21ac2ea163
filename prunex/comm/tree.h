// The binomial tree that broadcasts go down.
#pragma once

#include <vector>

#include "prunex/comm/traffic.h"

namespace prunex::comm {

/// A rank's neighbours.
struct Tree {
  int parent = -1;  ///< -1: the root
  std::vector<int> children;
};

/// With v = (rank - root) mod n, rank v's children are v + 2^i < n with 2^i > v.
Tree binomial_tree(int root, Place place);

}  // namespace prunex::comm
