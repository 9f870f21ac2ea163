// What is removed for good: one value that the model, the optimizer and the strategy are cut by.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/sparsity/projection.h"
#include "prunex/tensors.h"

namespace prunex::sparsity {

/// Tensor name -> its shape.
using Shapes = std::map<std::string, std::vector<int64_t>>;

/// The shapes of all parameters and buffers.
Shapes shapes_of(const Weights& weights);

/// What survives of one tensor.
struct TensorCut {
  std::vector<int64_t> shape;                    ///< before the cut
  std::map<int64_t, std::vector<int64_t>> kept;  ///< axis -> surviving positions, ascending; other axes keep all
  bool operator==(const TensorCut&) const = default;
};

/// Which of a group's units survive.
struct GroupCut {
  std::string name;
  int64_t size = 0;           ///< units before the cut
  std::vector<int64_t> kept;  ///< surviving units, ascending
  Slice place;                ///< one of the group's slices: where its units lie
  bool operator==(const GroupCut&) const = default;
};

/// Positions and units count in the network that the cut is made for.
struct Cut {
  std::map<std::string, TensorCut> tensors;  ///< every parameter and buffer, also those that keep everything
  std::vector<GroupCut> groups;
  bool operator==(const Cut&) const = default;

  bool empty() const;  ///< nothing is removed
};

/// Removes the units that `masks` has dead from all slices of their group. Every group needs its mask, which keeps at
/// least one unit, and its slices must lie on rows or channels of the tensors of `shapes`.
Cut make_cut(const std::vector<Group>& groups, const Masks& masks, const Shapes& shapes);

/// The units that a cut leaves of groups of the whole network: those whose first position it keeps.
Masks units_left(const std::vector<Group>& groups, const Cut& cut);

/// The cut that has the effect of `first` and then `second`, which was made for what `first` leaves. The groups are
/// those of `first`; whether a unit survives is read from the tensors.
Cut compose(const Cut& first, const Cut& second);

/// 64 bits that tell cuts apart, the same on every machine: for comparing ranks.
uint64_t hash(const Cut& cut);

/// The shape that is left.
std::vector<int64_t> shape_after(const TensorCut& cut);

/// A new leaf tensor with the kept slices: the dimensions keep their order in memory (channels_last stays so),
/// requires_grad and the device stay, no gradient. `name` is for messages.
at::Tensor slice(const at::Tensor& tensor, const TensorCut& cut, const std::string& name);

/// Replaces each tensor that loses something by its slice; weights, gradients and optimizer state alike. All names must
/// be in the cut and all shapes must be those before it, otherwise c10::Error, and nothing has changed.
void apply_cut(TensorDict& tensors, const Cut& cut);
void apply_cut(Weights& weights, const Cut& cut);

/// What supports still say inside the tensors that are left; those that leave them whole are dropped.
Supports apply_cut(const Supports& supports, const Cut& cut);

}  // namespace prunex::sparsity
