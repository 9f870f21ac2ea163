// Eq. 10: which units survive, and what that means for tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/sparsity/keep_schedule.h"
#include "prunex/tensors.h"

namespace prunex::sparsity {

/// Names are unique, every slice's tensor exists and its positions lie inside the axis, each at most once; keep is in
/// (0, 1]. Throws std::invalid_argument that names the group.
void check_groups(const std::vector<Group>& groups, const TensorDict& tensors);

/// Squared norm of every unit, summed over the group's slices: one double[size] per group.
std::vector<at::Tensor> unit_scores(const std::vector<Group>& groups, const TensorDict& tensors);

/// bool[n] with the k highest scores set; of equal scores the lower index wins.
at::Tensor top_k_mask(const at::Tensor& scores, int64_t k);

/// One mask per group: the best units_kept(size, schedule.share(k, keep)) units by `scores`.
Masks select_units(const std::vector<Group>& groups, const std::vector<at::Tensor>& scores,
                   const KeepSchedule& schedule, int64_t k);

/// All units alive.
Masks full_masks(const std::vector<Group>& groups);

/// Units alive in all masks together, and units that differ between two sets of masks.
int64_t count_alive(const Masks& masks);
int64_t count_changes(const Masks& before, const Masks& after);

/// What masks leave of one tensor: rows x columns of its GEMM view. Undefined means all alive.
struct Support {
  at::Tensor rows;     ///< bool[shape[0]]
  at::Tensor columns;  ///< bool[shape[1:]]

  bool full() const { return !rows.defined() && !columns.defined(); }
};

/// Tensor name -> the intersection of its groups' masks; tensors outside every group are left out.
using Supports = torch::OrderedDict<std::string, Support>;
Supports supports_of(const std::vector<Group>& groups, const Masks& masks, const TensorDict& tensors);

/// Zeroes what is outside the support, in place.
void apply_support(at::Tensor& tensor, const Support& support);
/// The same for every tensor of `tensors` that has a support.
void apply_supports(TensorDict& tensors, const Supports& supports);

}  // namespace prunex::sparsity
