#include "prunex/strategies/hsadmm/mask_consensus.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "prunex/strategies/dictionaries.h"

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

/// A node weighs as much as it has ranks, times its share.
std::vector<at::Tensor> summed_over_ranks(const std::vector<at::Tensor>& scores, const std::vector<Group>& groups,
                                          RailExchange& ranks) {
  at::Tensor all = at::cat(scores);
  const double weight = ranks.share() * (ranks.layout().is_even() ? 1 : ranks.layout().ranks_here());
  if (weight != 1) all.mul_(weight);
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
  if (ranks.share() == 0) all.zero_();
  ranks.unite_over_nodes(all);
  Masks united;
  const auto parts = split_units(all.to(at::kBool), groups);
  for (size_t g = 0; g < groups.size(); ++g) united.insert(groups[g].name, parts[g].clone());
  return united;
}

}  // namespace

MaskConsensus::MaskConsensus(MaskOptions options) : options_(std::move(options)) {
  node_ = global_ = sparsity::full_masks(groups());
}

Masks MaskConsensus::select(const std::vector<at::Tensor>& scores, int64_t k) const {
  if (!options_.select) return sparsity::select_units(groups(), scores, options_.keep, k);
  const double progress = options_.keep.progress(k);
  return progress > 0 ? options_.select(scores, progress) : sparsity::full_masks(groups());
}

void MaskConsensus::set(int64_t k, Masks node, Masks global) {
  changes_ = sparsity::count_changes(global_, global);
  stable_ = changes_ == 0 && options_.keep.progress(k) > 0 ? stable_ + 1 : 0;
  node_ = std::move(node);
  global_ = std::move(global);
}

void MaskConsensus::update(int64_t k, const std::vector<at::Tensor>& scores, RailExchange& ranks) {
  if (groups().empty()) return;
  if (options_.rule == MaskRule::kJoint) {
    const Masks masks = select(summed_over_ranks(scores, groups(), ranks), k);
    return set(k, masks, masks);
  }
  const Masks own = select(summed_in_node(scores, groups(), ranks), k);
  set(k, own, united_over_nodes(own, groups(), ranks));
}

void MaskConsensus::freeze(const std::vector<at::Tensor>& scores, RailExchange& ranks) {
  if (!groups().empty()) freeze(summed_over_ranks(scores, groups(), ranks));
}

void MaskConsensus::freeze(const std::vector<at::Tensor>& scores) {
  node_ = global_ = select(scores, kFinal);
  changes_ = 0;
}

bool MaskConsensus::prunes_at(int64_t k) const {
  if (options_.select) return options_.keep.progress(k) > 0;
  return std::any_of(groups().begin(), groups().end(),
                     [&](const Group& group) { return options_.keep.share(k, group.keep) < 1; });
}

bool MaskConsensus::freezes_at(int64_t k) const {
  const bool settled = options_.freeze_when_stable > 0 && stable_ >= options_.freeze_when_stable;
  return k > options_.freeze_after || (settled && k >= options_.keep.end);
}

sparsity::Supports MaskConsensus::support_of_node(const sparsity::Supports& global, const TensorDict& params) const {
  return options_.rule == MaskRule::kUnion ? sparsity::supports_of(groups(), node_, params) : global;
}

/// Ranks that all hold the whole share its scores equally.
std::vector<at::Tensor> MaskConsensus::shares_of_scores(const Weights& candidate, RailExchange& ranks) const {
  auto scores = options_.score(candidate, ranks.node());
  for (auto& score : scores) score = score / ranks.layout().ranks_here();
  return scores;
}

std::vector<at::Tensor> MaskConsensus::equal_scores() const {
  std::vector<at::Tensor> scores;
  for (const Group& group : groups()) scores.push_back(at::zeros({group.size}, at::kDouble));
  return scores;
}

void MaskConsensus::save(State& state) const {
  store(state.global, "mask/", global_);
  store(state.node, "node_mask/", node_);
}

void MaskConsensus::load(const State& state, int64_t stable) {
  const auto put = [](const TensorDict& from, const std::string& prefix, sparsity::Masks& masks) {
    for (auto& mask : masks) {
      mask.value() = saved(from, prefix + mask.key(), mask.value().sizes(), mask.value().scalar_type()).clone();
    }
  };
  put(state.global, "mask/", global_);
  put(state.node, "node_mask/", node_);
  stable_ = stable;
}

double MaskConsensus::kept_share() const {
  int64_t units = 0;
  for (const Group& group : groups()) units += group.size;
  return units == 0 ? 1.0 : static_cast<double>(sparsity::count_alive(global_)) / static_cast<double>(units);
}

TensorDict gradient_masks(const sparsity::Supports& alive, const TensorDict& params) {
  TensorDict masks;
  for (const auto& support : alive) {
    if (support.value().full()) continue;
    at::Tensor mask = at::ones_like(params[support.key()]);
    sparsity::apply_support(mask, support.value());
    masks.insert(support.key(), mask);
  }
  return masks;
}

}  // namespace prunex::strategies
