// Tensors, and one group of every kind on them.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::tests {

/// Two convolutions, a vector, a linear layer and a vector in no group, of different sizes on every axis; 4-d ones in
/// `format`.
inline TensorDict random_tensors(at::ScalarType type, at::MemoryFormat format, uint64_t seed = 7) {
  auto generator = at::detail::createCPUGenerator(seed);
  TensorDict tensors;
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    const at::Tensor tensor = at::randn(sizes, generator, at::kDouble).to(type);
    tensors.insert(name, tensor.dim() == 4 ? tensor.contiguous(format) : tensor);
  };
  add("first", {6, 3, 3, 3});
  add("gamma", {6});
  add("second", {5, 6, 2, 3});
  add("linear", {4, 20});
  add("free", {7});
  return tensors;
}

/// The units of `coupled` are filters of `first` with their entry of `gamma` and their channel of `second`; those of
/// `flat` are four adjacent columns of `linear`, in an order of their own, leaving columns 8 to 11 alone.
inline std::vector<sparsity::Group> groups_of_every_kind(double keep = 1) {
  using namespace sparsity;
  std::vector<Group> groups{
      {.name = "coupled", .slices = {{"first", kRows, {}}, {"gamma", kRows, {}}, {"second", kChannels, {}}}, .size = 6},
      {.name = "filter", .slices = {{"second", kRows, {}}}, .size = 5},
      {.name = "channel", .slices = {{"first", kChannels, {}}}, .size = 3},
      {.name = "shape", .slices = {{"second", kColumns, {}}}, .size = 36},
      {.name = "flat",
       .slices = {{"linear", kChannels, {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 18, 19}}},
       .size = 4},
  };
  for (Group& group : groups) group.keep = keep;
  return groups;
}

/// Units 0, 3, 6, … of every group dead, so that what is alive has neighbours and gaps.
inline sparsity::Masks mixed_masks(const std::vector<sparsity::Group>& groups) {
  sparsity::Masks masks;
  for (const auto& group : groups) masks.insert(group.name, at::arange(group.size).remainder(3).ne(0));
  return masks;
}

}  // namespace prunex::tests
