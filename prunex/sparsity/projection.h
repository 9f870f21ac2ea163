// Eq. 10: how many units survive, which, and what that means for tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::sparsity {

// How many.

enum class KeepRamp {
  kCubic,  ///< from 1 at `start` to the final share at `end`, fast first (arXiv 1710.01878)
  kHard,   ///< the final share from the first exchange on
};

/// The share of units kept at exchange k = 1, 2, …; docs/algorithm.md, section 3.
struct KeepSchedule {
  KeepRamp ramp = KeepRamp::kCubic;
  int64_t start = 2;  ///< k0: the first exchange that prunes
  int64_t end = 2;    ///< k1: the first exchange at the final share

  /// How far exchange k is on the way from everything, 0, to the final share, 1.
  double progress(int64_t k) const;
  /// In [keep, 1] for a final share `keep`.
  double share(int64_t k, double keep) const;
};

/// max(1, floor(size * share + 0.5)).
int64_t units_kept(int64_t size, double share);

/// The multiple that processors like in a group of `size` units: 16 from 64 units on, 8 from 16 on, else 1. Kernels
/// work in blocks of channels; one channel over a multiple can cost a whole block.
int64_t hardware_multiple(int64_t size);

/// The nearest multiple of `multiple` to size * share, ties up, at least one multiple and at most `size`, as a share of
/// `size`.
double rounded_share(int64_t size, double share, int64_t multiple);

// Which.

/// Names are unique, every slice's tensor exists and its positions lie inside the axis, each at most once; keep is in
/// (0, 1]. Throws std::invalid_argument that names the group.
void check_groups(const std::vector<Group>& groups, const TensorDict& tensors);

/// Squared norm of every unit, summed over the group's slices: one double[size] per group.
std::vector<at::Tensor> unit_scores(const std::vector<Group>& groups, const TensorDict& tensors);

/// bool[n] with the k highest scores set; of equal scores the lower index wins.
at::Tensor top_k_mask(const at::Tensor& scores, int64_t k);

/// One mask per group: the best units_kept(size, schedule.share(k, keep)) units by `scores`. Throws
/// std::invalid_argument for a score that is not a number.
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
