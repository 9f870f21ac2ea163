#include "prunex/prune/threshold.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>

#include "prunex/prune/weight_roles.h"

namespace prunex::prune {
namespace {

using Roles = std::map<std::string, WeightRole>;

/// double per position of one axis, on the CPU.
at::Tensor largest_along(const at::Tensor& weight, int64_t axis) {
  const at::Tensor magnitude = weight.detach().abs().to(at::kDouble).cpu();
  return magnitude.movedim(axis, 0).reshape({weight.size(axis), -1}).amax(1).contiguous();
}

/// Of every unit.
std::vector<double> largest_weights(const sparsity::Group& group, const Weights& weights, const Roles& roles) {
  std::vector<double> largest(static_cast<size_t>(group.size), 0);
  for (const auto& slice : group.slices) {
    const at::Tensor* weight = weights.params.find(slice.tensor);
    const auto role = roles.find(slice.tensor);
    if (weight == nullptr || role == roles.end() || !is_layer(role->second.kind)) continue;
    const at::Tensor positions = largest_along(*weight, slice.axis);
    const double* position = positions.const_data_ptr<double>();
    const int64_t block = channels_per_unit(slice, group.size);
    for (int64_t i = 0; i < group.size * block; ++i) {
      double& unit = largest[static_cast<size_t>(i / block)];
      unit = std::max(unit, position[slice.index.empty() ? i : slice.index[static_cast<size_t>(i)]]);
    }
  }
  return largest;
}

}  // namespace

sparsity::Masks units_above(const std::vector<sparsity::Group>& groups, const program::Model& model, double threshold) {
  const Roles roles = weight_roles(model.program.graph());
  sparsity::Masks alive;
  for (const auto& group : groups) {
    const auto largest = largest_weights(group, model.weights, roles);
    at::Tensor mask = at::zeros({group.size}, at::kBool);
    bool* keeps = mask.mutable_data_ptr<bool>();
    for (size_t unit = 0; unit < largest.size(); ++unit) keeps[unit] = largest[unit] >= threshold;
    keeps[std::max_element(largest.begin(), largest.end()) - largest.begin()] = true;
    alive.insert(group.name, mask);
  }
  return alive;
}

}  // namespace prunex::prune
