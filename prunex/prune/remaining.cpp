#include "prunex/prune/pruner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace prunex::prune {
namespace {

using channels::DependencyGroup;
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

/// Whether a layer reads the units of a slice; of a tensor that no operation knows, one may.
bool is_read(const channels::WeightRole* role, int64_t axis) {
  const bool known = role != nullptr && role->kind != channels::WeightKind::kOther;
  return known ? role->reads(axis) : axis == sparsity::kChannels;
}

/// bool per position of the slice's axis: whether any weight there is alive; undefined: all are.
at::Tensor alive_positions(const Slice& slice, const sparsity::Supports& supports) {
  const sparsity::Support* support = supports.find(slice.tensor);
  if (support == nullptr || slice.axis > sparsity::kChannels) return {};
  if (slice.axis == sparsity::kRows) return support->rows;
  return support->columns.defined() ? support->columns.reshape({support->columns.size(0), -1}).any(1) : at::Tensor();
}

/// bool per unit: whether any weight that `counts` is alive in one of its slices; undefined: none counts.
template <class Counts>
at::Tensor alive_units(const DependencyGroup& group, const sparsity::Supports& supports, const Counts& counts) {
  at::Tensor alive;
  for (const Slice& slice : group.slices) {
    if (!counts(slice)) continue;
    const at::Tensor positions = alive_positions(slice, supports);
    const at::Tensor units =
        !positions.defined() ? at::ones({group.size}, at::kBool)
        : slice.index.empty()
            ? positions
            : positions.index_select(0, at::tensor(slice.index, at::kLong)).view({group.size, -1}).any(1);
    alive = alive.defined() ? alive.logical_or(units) : units.clone();
  }
  return alive;
}

/// Features that are added up without a weight, such as those of queries and keys, add nothing once all that makes them
/// is masked: an analysis freezes those of which that is not so.
at::Tensor units_read(const DependencyGroup& group, const channels::Analysis& analysis,
                      const sparsity::Supports& supports) {
  const auto reads = [&](const Slice& slice) { return is_read(analysis.role(slice.tensor), slice.axis); };
  at::Tensor alive = alive_units(group, supports, reads);
  if (group.summed || !alive.defined()) {
    const auto makes = [&](const Slice& slice) { return analysis.role(slice.tensor) != nullptr && !reads(slice); };
    const at::Tensor made = alive_units(group, supports, makes);
    alive = !alive.defined() ? made : !made.defined() ? alive : alive.logical_or(made);
  }
  if (!alive.defined()) return at::ones({group.size}, at::kBool);
  if (!alive.any().item<bool>()) alive[0] = true;
  return alive;
}

/// double per position of one axis, on the CPU.
at::Tensor largest_along(const at::Tensor& weight, int64_t axis) {
  const at::Tensor magnitude = weight.detach().abs().to(at::kDouble).cpu();
  return magnitude.movedim(axis, 0).reshape({weight.size(axis), -1}).amax(1).contiguous();
}

/// Of every unit; empty: the group lies on no layer's weights.
std::vector<double> largest_weights(const Group& group, const Weights& weights, const channels::Analysis& analysis) {
  std::vector<double> largest;
  for (const auto& slice : group.slices) {
    const at::Tensor* weight = weights.params.find(slice.tensor);
    const auto* role = analysis.role(slice.tensor);
    if (weight == nullptr || role == nullptr || !is_layer(role->kind)) continue;
    largest.resize(static_cast<size_t>(group.size));
    const at::Tensor positions = largest_along(*weight, slice.axis);
    const double* position = positions.const_data_ptr<double>();
    const int64_t block = slice.positions_per_unit(group.size);
    for (int64_t i = 0; i < group.size * block; ++i) {
      double& unit = largest[static_cast<size_t>(i / block)];
      unit = std::max(unit, position[slice.index.empty() ? i : slice.index[static_cast<size_t>(i)]]);
    }
  }
  return largest;
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
  TORCH_CHECK(scores.size() == groups.size(), "[prune] scores of ", scores.size(), " groups, wanted ", groups.size());
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

Masks units_read(const channels::Analysis& analysis, const sparsity::Supports& supports) {
  Masks alive;
  for (const DependencyGroup& group : analysis.groups()) {
    if (group.prunable) alive.insert(group.name, units_read(group, analysis, supports));
  }
  return alive;
}

sparsity::Cut removable_cut(const channels::Analysis& analysis, const std::vector<Group>& groups, const Masks& masks,
                            const Weights& weights) {
  const auto supports = sparsity::supports_of(groups, masks, weights.params);
  return sparsity::make_cut(analysis.removable(), units_read(analysis, supports), sparsity::shapes_of(weights));
}

Masks units_above(const channels::Analysis& analysis, const Weights& weights, double threshold,
                  const std::vector<std::string>& ignore) {
  Masks alive;
  const std::set<std::string> ignored = ignored_groups(analysis, ignore);
  for (const Group& group : analysis.removable()) {
    at::Tensor mask = at::ones({group.size}, at::kBool);
    alive.insert(group.name, mask);
    if (ignored.contains(group.name)) continue;
    const auto largest = largest_weights(group, weights, analysis);
    bool* keeps = mask.mutable_data_ptr<bool>();
    for (size_t unit = 0; unit < largest.size(); ++unit) keeps[unit] = largest[unit] >= threshold;
    if (!largest.empty()) keeps[std::max_element(largest.begin(), largest.end()) - largest.begin()] = true;
  }
  return alive;
}

}  // namespace prunex::prune
