#include "prunex/train/leftovers.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace prunex::train {
namespace {

const char* reason_on(int64_t axis) {
  switch (axis) {
    case sparsity::kRows:
      return "other layers still read these channels";
    case sparsity::kChannels:
      return "other layers read these channels, or they are an input of the network";
    default:
      return "a kernel position has no extent of its own in the weight's shape";
  }
}

/// Positions that the cut removed from the axis of a slice.
int64_t removed(const sparsity::Slice& slice, const sparsity::Cut& cut) {
  if (slice.axis == sparsity::kColumns) return 0;
  const auto& tensor = cut.tensors.at(slice.tensor);
  const auto kept = tensor.kept.find(slice.axis);
  if (kept == tensor.kept.end()) return 0;
  return tensor.shape.at(static_cast<size_t>(slice.axis)) - static_cast<int64_t>(kept->second.size());
}

}  // namespace

std::vector<Leftover> leftovers(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks,
                                const sparsity::Cut& cut) {
  std::vector<Leftover> all;
  for (const auto& group : groups) {
    const auto& slice = group.slices.front();
    const int64_t per_unit =
        slice.index.empty() ? 1 : std::max<int64_t>(1, static_cast<int64_t>(slice.index.size()) / group.size);
    const int64_t pruned = group.size - masks[group.name].sum().item<int64_t>();
    const int64_t units = pruned - removed(slice, cut) / per_unit;
    if (units > 0) all.push_back({group.name, units, reason_on(slice.axis)});
  }
  return all;
}

}  // namespace prunex::train
