#include "prunex/sparsity/projection.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

namespace prunex::sparsity {
namespace {

int64_t axis_length(const at::Tensor& tensor, int64_t axis) {
  return axis == kColumns ? tensor.numel() / tensor.size(0) : tensor.size(axis);
}

[[noreturn]] void refuse(const Group& group, const std::string& why) {
  throw std::invalid_argument(fmt::format("group '{}': {}", group.name, why));
}

void check_slice(const Group& group, const Slice& slice, const TensorDict& tensors) {
  const at::Tensor* tensor = tensors.find(slice.tensor);
  if (tensor == nullptr) refuse(group, fmt::format("no parameter is named '{}'", slice.tensor));
  const bool known = slice.axis == kRows || slice.axis == kChannels || slice.axis == kColumns;
  if (!known || tensor->dim() == 0 || slice.axis >= tensor->dim()) {
    refuse(group, fmt::format("'{}' has {} dimensions; got axis {}, wanted 0, 1 or {} for columns of the GEMM view",
                              slice.tensor, tensor->dim(), slice.axis, kColumns));
  }
  const int64_t length = axis_length(*tensor, slice.axis);
  if (slice.index.empty()) {
    if (length != group.size) refuse(group, fmt::format("{} units, but '{}' has {}", group.size, slice.tensor, length));
    return;
  }
  if (static_cast<int64_t>(slice.index.size()) % group.size != 0) {
    refuse(group, fmt::format("{} positions in '{}' for {} units", slice.index.size(), slice.tensor, group.size));
  }
  std::vector<bool> seen(length, false);
  for (int64_t position : slice.index) {
    if (position < 0 || position >= length || seen[position]) {
      refuse(group,
             fmt::format("position {} of '{}' is outside 0..{} or listed twice", position, slice.tensor, length - 1));
    }
    seen[position] = true;
  }
}

/// Squared entries summed over everything but one axis, as double[axis length].
at::Tensor squares_along(const at::Tensor& squares, int64_t axis) {
  if (axis == kColumns) return squares.reshape({squares.size(0), -1}).sum(0);
  std::vector<int64_t> others;
  for (int64_t d = 0; d < squares.dim(); ++d) {
    if (d != axis) others.push_back(d);
  }
  return others.empty() ? squares : squares.sum(others);
}

/// Vectors on a device go to the host together: it waits once.
template <class Vectors>
void bring_to_host(Vectors& vectors) {
  std::vector<at::Tensor> there;
  std::vector<int64_t> sizes;
  for (const auto& item : vectors) {
    if (item.second.is_cpu()) continue;
    there.push_back(item.second.flatten());
    sizes.push_back(there.back().numel());
  }
  if (there.empty()) return;
  const auto here = at::cat(there).cpu().split_with_sizes(sizes);
  size_t next = 0;
  for (auto& item : vectors) {
    if (!item.second.is_cpu()) item.second = here[next++];
  }
}

at::Tensor index_tensor(const std::vector<int64_t>& index) {
  return at::tensor(index, at::kLong);
}

/// bool[axis length]: what one group's mask leaves of the axis its slice lies on.
at::Tensor alive_positions(const Slice& slice, const at::Tensor& mask, int64_t length) {
  if (slice.index.empty()) return mask;
  auto alive = at::ones({length}, at::kBool);
  alive.index_put_({index_tensor(slice.index)}, mask.repeat_interleave(slice.positions_per_unit(mask.numel())));
  return alive;
}

void intersect(at::Tensor& mask, const at::Tensor& with) {
  mask = mask.defined() ? mask.logical_and(with) : with;
}

void intersect(Support& support, const Slice& slice, const at::Tensor& alive, const at::Tensor& tensor) {
  if (slice.axis == kRows) return intersect(support.rows, alive);
  const auto inner = tensor.sizes().slice(1);
  if (slice.axis == kColumns) return intersect(support.columns, alive.view(inner));
  TORCH_CHECK(slice.axis == kChannels, "[sparsity] a slice lies on axis 0, 1 or the GEMM columns");
  std::vector<int64_t> shape(inner.size(), 1);
  shape[0] = inner[0];
  intersect(support.columns, alive.view(shape).expand(inner));
}

}  // namespace

void check_groups(const std::vector<Group>& groups, const TensorDict& tensors) {
  std::set<std::string> names;
  for (const Group& group : groups) {
    if (!names.insert(group.name).second) refuse(group, "another group has the same name");
    if (group.size < 1) refuse(group, fmt::format("{} units", group.size));
    if (!(group.keep > 0 && group.keep <= 1))
      refuse(group, fmt::format("keep is {}, wanted a share in (0, 1]", group.keep));
    for (const Slice& slice : group.slices) check_slice(group, slice, tensors);
  }
}

std::vector<at::Tensor> unit_scores(const std::vector<Group>& groups, const TensorDict& tensors) {
  at::NoGradGuard no_grad;
  std::map<std::pair<std::string, int64_t>, at::Tensor> sums;  // groups share tensors: square and sum each once
  std::map<std::string, std::vector<int64_t>> axes;
  for (const Group& group : groups) {
    for (const Slice& slice : group.slices) axes[slice.tensor].push_back(slice.axis);
  }
  for (const auto& [name, wanted] : axes) {
    const at::Tensor squares = tensors[name].to(at::kDouble).square();
    for (int64_t axis : wanted) {
      if (auto& sum = sums[{name, axis}]; !sum.defined()) sum = squares_along(squares, axis);
    }
  }
  bring_to_host(sums);
  std::vector<at::Tensor> scores;
  for (const Group& group : groups) {
    auto score = at::zeros({group.size}, at::kDouble);
    for (const Slice& slice : group.slices) {
      const at::Tensor& sum = sums.at({slice.tensor, slice.axis});
      score += slice.index.empty() ? sum : sum.index_select(0, index_tensor(slice.index)).view({group.size, -1}).sum(1);
    }
    scores.push_back(std::move(score));
  }
  return scores;
}

at::Tensor top_k_mask(const at::Tensor& scores, int64_t k) {
  const at::Tensor values = scores.contiguous();
  const double* score = values.const_data_ptr<double>();
  std::vector<int64_t> order(values.numel());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [score](int64_t a, int64_t b) { return score[a] > score[b]; });
  auto mask = at::zeros({values.numel()}, at::kBool);
  bool* alive = mask.data_ptr<bool>();
  for (int64_t i = 0; i < std::min<int64_t>(k, values.numel()); ++i) alive[order[i]] = true;
  return mask;
}

Masks select_units(const std::vector<Group>& groups, const std::vector<at::Tensor>& scores,
                   const KeepSchedule& schedule, int64_t k) {
  Masks masks;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (scores[g].isnan().any().item<bool>()) {
      throw std::invalid_argument(fmt::format(
          "scores of {} are not numbers: its weights are none, or their squares too large", groups[g].name));
    }
    const int64_t kept = units_kept(groups[g].size, schedule.share(k, groups[g].keep));
    masks.insert(groups[g].name, top_k_mask(scores[g], kept));
  }
  return masks;
}

Masks full_masks(const std::vector<Group>& groups) {
  Masks masks;
  for (const Group& group : groups) masks.insert(group.name, at::ones({group.size}, at::kBool));
  return masks;
}

int64_t count_alive(const Masks& masks) {
  int64_t alive = 0;
  for (const auto& mask : masks) alive += mask.value().sum().item<int64_t>();
  return alive;
}

int64_t count_changes(const Masks& before, const Masks& after) {
  int64_t changes = 0;
  for (const auto& mask : before) changes += mask.value().ne(after[mask.key()]).sum().item<int64_t>();
  return changes;
}

Supports supports_of(const std::vector<Group>& groups, const Masks& masks, const TensorDict& tensors) {
  Supports supports;
  for (const Group& group : groups) {
    for (const Slice& slice : group.slices) {
      const at::Tensor& tensor = tensors[slice.tensor];
      if (supports.find(slice.tensor) == nullptr) supports.insert(slice.tensor, Support{});
      const at::Tensor alive = alive_positions(slice, masks[group.name], axis_length(tensor, slice.axis));
      intersect(supports[slice.tensor], slice, alive, tensor);
    }
  }
  return supports;
}

void apply_support(at::Tensor& tensor, const Support& support) {
  at::NoGradGuard no_grad;
  if (support.columns.defined()) tensor.mul_(support.columns.to(tensor.device()));
  if (!support.rows.defined()) return;
  std::vector<int64_t> shape(tensor.dim(), 1);
  shape[0] = tensor.size(0);
  tensor.mul_(support.rows.view(shape).to(tensor.device()));
}

void apply_supports(TensorDict& tensors, const Supports& supports) {
  for (const auto& support : supports) {
    if (at::Tensor* tensor = tensors.find(support.key())) apply_support(*tensor, support.value());
  }
}

}  // namespace prunex::sparsity
