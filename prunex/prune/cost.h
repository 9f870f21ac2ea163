// Parameters and operations of a network as functions of how many units its groups keep: no forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/widths.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

enum class Counting {
  kMacs,          ///< multiply-accumulates of one image in convolutions and linear layers, as program::macs()
  kTorchPruning,  ///< Torch-Pruning's convention: biases, norms, activations and pooling layers, too
};

/// A sum of products of widths.
class Count {
 public:
  void add(int64_t factor, const Widths& widths, const std::vector<program::AxisOf>& axes);
  int64_t operator()(const std::vector<int64_t>& kept) const;

 private:
  struct Product {
    int64_t factor = 1;
    std::vector<Width> widths;  // those that depend on groups
  };
  int64_t fixed_ = 0;
  std::vector<Product> products_;
};

/// The network's size when group i keeps kept[i] units. Both counts shrink when a unit goes.
struct Cost {
  Count parameters;
  Count macs;
};
Cost cost_of(const program::Graph& graph, const std::vector<sparsity::Group>& groups, Counting counting,
             GroupOptions options = {});

/// Nothing removed.
std::vector<int64_t> all_units(const std::vector<sparsity::Group>& groups);

}  // namespace prunex::prune
