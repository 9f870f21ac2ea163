#include "prunex/strategies/mask_consensus.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace prunex::strategies {
namespace {

using sparsity::Group;
using sparsity::Masks;

constexpr int64_t kFinal = std::numeric_limits<int64_t>::max();  // an exchange after every ramp

std::vector<at::Tensor> split_units(const at::Tensor& all, const std::vector<Group>& groups) {
  std::vector<int64_t> sizes;
  for (const Group& group : groups) sizes.push_back(group.size);
  return all.split_with_sizes(sizes);
}

/// A node weighs as much as it has ranks.
std::vector<at::Tensor> summed_over_ranks(const std::vector<at::Tensor>& scores, const std::vector<Group>& groups,
                                          RailExchange& ranks) {
  at::Tensor all = at::cat(scores);
  const auto& layout = ranks.layout();
  if (!layout.is_even()) all.mul_(layout.ranks_here());
  ranks.sum_over_ranks(all);
  return split_units(all, groups);
}

std::vector<at::Tensor> summed_in_node(const std::vector<at::Tensor>& scores, const std::vector<Group>& groups,
                                       RailExchange& ranks) {
  at::Tensor all = at::cat(scores);
  ranks.sum_in_node(all);
  return split_units(all, groups);
}

/// Eq. 14, one byte per unit.
Masks united_over_nodes(const Masks& masks, const std::vector<Group>& groups, RailExchange& ranks) {
  at::Tensor all = at::cat(masks.values()).to(at::kByte);
  ranks.unite_over_nodes(all);
  Masks united;
  const auto parts = split_units(all.to(at::kBool), groups);
  for (size_t g = 0; g < groups.size(); ++g) united.insert(groups[g].name, parts[g].clone());
  return united;
}

}  // namespace

MaskConsensus::MaskConsensus(std::vector<Group> groups, sparsity::KeepSchedule schedule, MaskRule rule,
                             UnitSelector select)
    : groups_(std::move(groups)), schedule_(schedule), rule_(rule), select_(std::move(select)) {
  node_ = global_ = sparsity::full_masks(groups_);
}

Masks MaskConsensus::select(const std::vector<at::Tensor>& scores, int64_t k) const {
  if (!select_) return sparsity::select_units(groups_, scores, schedule_, k);
  const double progress = schedule_.progress(k);
  return progress > 0 ? select_(scores, progress) : sparsity::full_masks(groups_);
}

void MaskConsensus::set(Masks node, Masks global) {
  changes_ = sparsity::count_changes(global_, global);
  stable_ = changes_ == 0 ? stable_ + 1 : 0;
  node_ = std::move(node);
  global_ = std::move(global);
}

void MaskConsensus::update(int64_t k, const std::vector<at::Tensor>& scores, RailExchange& ranks) {
  if (groups_.empty()) return;
  if (rule_ == MaskRule::kJoint) {
    const Masks masks = select(summed_over_ranks(scores, groups_, ranks), k);
    return set(masks, masks);
  }
  const Masks own = select(summed_in_node(scores, groups_, ranks), k);
  set(own, united_over_nodes(own, groups_, ranks));
}

void MaskConsensus::freeze(const std::vector<at::Tensor>& scores, RailExchange& ranks) {
  if (!groups_.empty()) freeze(summed_over_ranks(scores, groups_, ranks));
}

void MaskConsensus::freeze() {
  node_ = global_;
  changes_ = 0;
}

void MaskConsensus::freeze(const std::vector<at::Tensor>& scores) {
  node_ = global_ = select(scores, kFinal);
  changes_ = 0;
}

bool MaskConsensus::prunes_at(int64_t k) const {
  if (select_) return schedule_.progress(k) > 0;
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return schedule_.share(k, group.keep) < 1; });
}

std::vector<at::Tensor> MaskConsensus::equal_scores() const {
  std::vector<at::Tensor> scores;
  for (const Group& group : groups_) scores.push_back(at::zeros({group.size}, at::kDouble));
  return scores;
}

void MaskConsensus::restore(Masks node, Masks global, int64_t stable) {
  node_ = std::move(node);
  global_ = std::move(global);
  stable_ = stable;
}

double MaskConsensus::kept_share() const {
  int64_t units = 0;
  for (const Group& group : groups_) units += group.size;
  return units == 0 ? 1.0 : static_cast<double>(sparsity::count_alive(global_)) / static_cast<double>(units);
}

}  // namespace prunex::strategies
