// Which unit of a group owns which entry of a tensor, entry by entry: the slow reference for masks and scores.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "prunex/sparsity/group.h"

namespace prunex::tests {

constexpr int64_t kNoUnit = -1;

/// Where entry number `entry`, row-major, lies on an axis of a tensor of these sizes.
inline int64_t position_of(int64_t entry, at::IntArrayRef sizes, int64_t axis) {
  int64_t width = 1;
  for (size_t d = 1; d < sizes.size(); ++d) width *= sizes[d];
  if (axis == sparsity::kRows) return entry / width;
  const int64_t column = entry % width;
  return axis == sparsity::kColumns ? column : column / (width / sizes[1]);
}

/// int64 of the tensor's shape, row-major: the unit that a slice gives each entry to, or kNoUnit.
inline at::Tensor unit_of_entries(const sparsity::Group& group, const sparsity::Slice& slice,
                                  const at::Tensor& tensor) {
  const at::Tensor units = at::full(tensor.sizes(), kNoUnit, at::kLong);
  int64_t* unit = units.data_ptr<int64_t>();
  for (int64_t entry = 0; entry < tensor.numel(); ++entry) {
    const int64_t position = position_of(entry, tensor.sizes(), slice.axis);
    unit[entry] = position;
    if (slice.index.empty()) continue;
    const auto found = std::find(slice.index.begin(), slice.index.end(), position);
    const int64_t block = static_cast<int64_t>(slice.index.size()) / group.size;
    unit[entry] = found == slice.index.end() ? kNoUnit : (found - slice.index.begin()) / block;
  }
  return units;
}

/// 0/1 in the tensor's shape and double: the product of what every group's mask leaves of the tensor called `name`.
inline at::Tensor alive_entries(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks,
                                const std::string& name, const at::Tensor& tensor) {
  at::Tensor alive = at::ones(tensor.sizes(), at::kDouble);
  for (const auto& group : groups) {
    for (const auto& slice : group.slices) {
      if (slice.tensor != name) continue;
      const at::Tensor units = unit_of_entries(group, slice, tensor);
      const at::Tensor of_unit = masks[group.name].to(at::kDouble);
      alive.mul_(at::where(units.eq(kNoUnit), at::ones_like(alive),
                           of_unit.index_select(0, units.clamp_min(0).flatten()).view(units.sizes())));
    }
  }
  return alive;
}

}  // namespace prunex::tests
