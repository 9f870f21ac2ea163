// Parameters and operations of a network as functions of how many units its groups keep: no forward pass.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// fixed + the sum of positions x kept units of each group.
struct Width {
  int64_t whole = 0;  ///< when groups keep all their units
  int64_t fixed = 0;
  std::vector<std::pair<size_t, int64_t>> shares;  ///< (group, its positions per unit)

  int64_t at(const std::vector<int64_t>& kept) const {
    int64_t width = fixed;
    for (const auto& [group, positions] : shares) width += positions * kept[group];
    return width;
  }
};

enum class Counting {
  kMacs,  ///< multiply-accumulates of one image in convolutions and linear layers, as program::macs()
  /// Torch-Pruning 1.6.1's convention: biases, norms, activations and pooling layers, too. Whether a call comes from a
  /// module is read from the file's metadata; without it, activations and pools count.
  kTorchPruning,
};

/// A sum of products of widths.
class Count {
 public:
  /// The sum is divided by `images`.
  explicit Count(int64_t images = 1) : images_(images) {}

  /// A product of widths. Throws std::invalid_argument if it is more than program::kMostMacs of whole ones.
  void add(int64_t factor, const std::vector<Width>& widths);
  int64_t operator()(const std::vector<int64_t>& kept) const;

 private:
  struct Term {
    int64_t factor = 1;
    std::vector<Width> widths;  // those that depend on groups
  };
  int64_t images_;
  int64_t fixed_ = 0;
  std::vector<Term> terms_;
};

/// The network's size when removable group i keeps kept[i] units. Both counts shrink when a unit goes.
struct Cost {
  Count parameters;
  Count macs;
};
Cost cost_of(const channels::Analysis& analysis, Counting counting);

/// Nothing removed.
std::vector<int64_t> all_units(const std::vector<sparsity::Group>& groups);

}  // namespace prunex::prune
