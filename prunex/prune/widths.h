// The extents of a program's values as functions of how many units its groups keep.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "prunex/program/macs.h"
#include "prunex/program/program.h"
#include "prunex/prune/group_options.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// fixed + the sum of positions x kept units of each group.
struct Width {
  int64_t fixed = 0;
  std::vector<std::pair<size_t, int64_t>> shares;  ///< (group, its positions per unit)

  int64_t at(const std::vector<int64_t>& kept) const {
    int64_t width = fixed;
    for (const auto& [group, positions] : shares) width += positions * kept[group];
    return width;
  }
};

/// All axes of all values, analysed once.
class Widths {
 public:
  /// `groups` are removable dependency groups of the graph, found with these options; `kept` counts in their order.
  Widths(const program::Graph& graph, const std::vector<sparsity::Group>& groups, GroupOptions options = {});

  const Width& of(const program::AxisOf& axis) const { return widths_[ids_.at(axis.value).at(axis.axis)]; }

 private:
  std::vector<Width> widths_;
  std::vector<std::vector<size_t>> ids_;  // value, axis -> widths_
};

}  // namespace prunex::prune
