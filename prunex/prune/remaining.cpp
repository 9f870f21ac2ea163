#include "prunex/prune/remaining.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

namespace prunex::prune {
namespace {

using sparsity::Cut;
using sparsity::Group;
using sparsity::Masks;
using sparsity::Slice;

constexpr int64_t kGone = -1;

/// Old position -> new position, or kGone, of every axis that loses something.
class NewPositions {
 public:
  explicit NewPositions(const Cut& cut) : cut_(cut) {}

  /// nullptr: the axis keeps everything.
  const std::vector<int64_t>* of(const std::string& tensor, int64_t axis) {
    const auto part = cut_.tensors.find(tensor);
    const auto kept = part->second.kept.find(axis);
    if (kept == part->second.kept.end()) return nullptr;
    auto [found, added] = known_.try_emplace({tensor, axis}, part->second.shape[axis], kGone);
    if (added) {
      for (size_t i = 0; i < kept->second.size(); ++i) found->second[kept->second[i]] = static_cast<int64_t>(i);
    }
    return &found->second;
  }

 private:
  const Cut& cut_;
  std::map<std::pair<std::string, int64_t>, std::vector<int64_t>> known_;
};

/// The positions that are left of a slice, in its order; empty if that is the identity on the whole axis.
std::vector<int64_t> left(const Slice& slice, const std::vector<int64_t>* renumbered) {
  if (renumbered == nullptr || slice.index.empty()) return slice.index;
  std::vector<int64_t> index;
  for (int64_t position : slice.index) {
    if ((*renumbered)[position] != kGone) index.push_back((*renumbered)[position]);
  }
  return index;
}

Group present(const Group& group, const Weights& weights) {
  Group part{.name = group.name, .slices = {}, .size = group.size, .keep = group.keep};
  for (const Slice& slice : group.slices) {
    if (weights.params.contains(slice.tensor) || weights.buffers.contains(slice.tensor)) part.slices.push_back(slice);
  }
  return part;
}

/// The cut of the groups that lie on any tensor.
Cut cut_of(const std::vector<Group>& groups, const Masks& alive, const Weights& weights) {
  std::vector<Group> placed;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(placed),
               [](const Group& group) { return !group.slices.empty(); });
  return sparsity::make_cut(placed, alive, sparsity::shapes_of(weights));
}

}  // namespace

std::vector<Group> remaining_groups(const std::vector<Group>& groups, const Masks& alive, const Cut& cut) {
  std::vector<Group> rest = groups;
  NewPositions positions(cut);
  for (Group& group : rest) {
    for (Slice& slice : group.slices) slice.index = left(slice, positions.of(slice.tensor, slice.axis));
    group.size = alive[group.name].sum().item<int64_t>();
  }
  return rest;
}

Remaining remaining(const std::vector<Group>& groups, const Masks& alive, const Weights& weights) {
  std::vector<Group> placed;
  for (const Group& group : groups) placed.push_back(present(group, weights));
  const Cut cut = cut_of(placed, alive, weights);
  Remaining rest{remaining_groups(placed, alive, cut), weights};
  sparsity::apply_cut(rest.weights, cut);
  return rest;
}

std::vector<UnitScores> spread(const std::vector<UnitScores>& scores, const std::vector<Group>& groups,
                               const Masks& alive) {
  std::vector<UnitScores> all;
  for (size_t group = 0; group < groups.size(); ++group) {
    all.emplace_back();
    if (scores[group].empty()) continue;
    const at::Tensor& mask = alive[groups[group].name];
    const bool* is_alive = mask.const_data_ptr<bool>();
    size_t next = 0;
    for (int64_t unit = 0; unit < groups[group].size; ++unit) {
      all.back().push_back(is_alive[unit] ? scores[group].at(next++) : 0);
    }
  }
  return all;
}

std::vector<UnitScores> score_alive(const Importance& importance, const std::vector<Group>& groups, const Masks& alive,
                                    const Weights& weights) {
  const Remaining rest = remaining(groups, alive, weights);
  return spread(importance.score(rest.groups, rest.weights), groups, alive);
}

}  // namespace prunex::prune
