#include "prunex/prune/removable.h"

#include <ATen/ATen.h>

namespace prunex::prune {
namespace {

/// bool[inputs]: whether any weight of the tensor's input channel is alive; undefined: all are.
at::Tensor channels_read(const sparsity::Support& support) {
  if (!support.columns.defined()) return {};
  return support.columns.reshape({support.columns.size(0), -1}).any(1);
}

/// bool[size]: the units of one slice that are still read.
at::Tensor units_read(const sparsity::Slice& slice, int64_t size, const sparsity::Supports& supports) {
  const sparsity::Support* support = supports.find(slice.tensor);
  const at::Tensor channels = support == nullptr ? at::Tensor() : channels_read(*support);
  if (!channels.defined()) return at::ones({size}, at::kBool);
  if (slice.index.empty()) return channels;
  return channels.index_select(0, at::tensor(slice.index, at::kLong)).view({size, -1}).any(1);
}

at::Tensor alive_units(const sparsity::Group& group, const sparsity::Supports& supports) {
  at::Tensor alive;
  for (const auto& slice : group.slices) {
    if (slice.axis != sparsity::kChannels) continue;
    const at::Tensor read = units_read(slice, group.size, supports);
    alive = alive.defined() ? alive.logical_or(read) : read;
  }
  if (!alive.defined()) return at::ones({group.size}, at::kBool);
  if (!alive.any().item<bool>()) alive[0] = true;
  return alive;
}

}  // namespace

Removable removable_units(const std::vector<DependencyGroup>& dependencies, const sparsity::Supports& supports) {
  Removable removable{removable_groups(dependencies), sparsity::Masks()};
  for (const auto& group : removable.groups) removable.alive.insert(group.name, alive_units(group, supports));
  return removable;
}

}  // namespace prunex::prune
