#include "prunex/prune/pruner.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <utility>

#include "prunex/channels/analysis.h"
#include "prunex/sparsity/projection.h"

namespace prunex::prune {
namespace {

Size size_of(const Cost& cost, const std::vector<int64_t>& kept) {
  return {cost.parameters(kept), cost.macs(kept)};
}

std::string difference(int64_t asked, int64_t kept, const Limit& limit) {
  if (kept == asked) return "";
  if (kept < asked && limit.multiple == 1) return "loses more units because others can lose no more";
  if (limit.multiple > 1)
    return fmt::format("keeps a multiple of {} units, and {} at least", limit.multiple, limit.floor);
  return fmt::format("keeps {} units at least", limit.floor);
}

}  // namespace

Pruner::Pruner(const program::Model& model, channels::Analysis analysis, const PlanOptions& options)
    : model_(model),
      analysis_(std::move(analysis)),
      options_(options),
      planner_(analysis_, options),
      plan_{sparsity::full_masks(planner_.groups()), all_units(planner_.groups())},
      scored_(planner_.groups().size(), true) {}

void Pruner::adopt(Plan plan, const std::vector<UnitScores>& scores) {
  plan_ = std::move(plan);
  for (size_t group = 0; group < scores.size(); ++group) scored_[group] = !scores[group].empty();
}

void Pruner::step(const std::vector<UnitScores>& scores, const Target& target, double progress) {
  const auto all = spread(scores, planner_.groups(), plan_.masks);
  adopt(planner_.plan(plan_.masks, all, target, progress), all);
}

void Pruner::prune(const Importance& importance, const Target& target, int64_t steps) {
  if (steps > 1 && importance.has_evidence()) {
    throw std::invalid_argument(fmt::format(
        "`steps`: got {}, wanted 1 with evidence from data, which has to be measured again in every step", steps));
  }
  const Weights weights = steps > 1 ? importance.condensed(model_.weights) : model_.weights;
  Plan plan = plan_;
  std::vector<UnitScores> scores;
  for (int64_t i = 1; i <= steps; ++i) {
    scores = score_alive(importance, planner_.groups(), plan.masks, weights);
    plan = planner_.plan(plan.masks, scores, target, static_cast<double>(i) / static_cast<double>(steps));
  }
  adopt(std::move(plan), scores);
}

sparsity::Cut Pruner::cut() const {
  return sparsity::make_cut(planner_.groups(), plan_.masks, sparsity::shapes_of(model_.weights));
}

std::vector<Decision> Pruner::decisions() const {
  const auto limits = limits_of(analysis_, options_.limits);
  const auto kept = kept_units(planner_.groups(), plan_.masks);
  std::vector<Decision> decisions;
  size_t next = 0;
  for (size_t i = 0; i < limits.size(); ++i) {
    const channels::DependencyGroup& group = analysis_.groups()[i];
    decisions.push_back({group.name, group.kind, limits[i].layers, group.size, group.size, group.size, limits[i].reason,
                         group.inexact});
    if (!group.prunable) continue;
    const size_t index = next++;
    Decision& decision = decisions.back();
    decision.asked = plan_.asked[index];
    decision.kept = kept[index];
    if (!decision.reason.empty()) continue;
    decision.reason = scored_[index] ? difference(decision.asked, decision.kept, limits[i])
                                     : "no weight says how much its units matter";
  }
  return decisions;
}

std::vector<LayerWidth> Pruner::layers() const {
  const auto& groups = analysis_.groups();
  const std::vector<Decision> decided = decisions();
  std::map<std::string, LayerWidth> by_weight;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const sparsity::Slice& slice : groups[i].slices) {
      const auto* role = analysis_.role(slice.tensor);
      if (role == nullptr || !makes_units(*role, slice)) continue;
      const int64_t channels = slice.positions_per_unit(groups[i].size);
      LayerWidth& width = by_weight[slice.tensor];
      width.before += decided[i].units * channels;
      width.asked += decided[i].asked * channels;
      width.done += decided[i].kept * channels;
      if (width.reason.empty()) width.reason = decided[i].reason;
    }
  }
  std::vector<LayerWidth> layers;
  for (const auto& item : model_.weights.params) {
    const auto found = by_weight.find(item.key());
    if (found == by_weight.end()) continue;
    found->second.layer = channels::layer_of(item.key());
    layers.push_back(found->second);
  }
  return layers;
}

Pruned Pruner::result() const {
  const sparsity::Cut cut = this->cut();
  program::Model small{channels::cut_program(analysis_, cut), model_.weights};
  sparsity::apply_cut(small.weights, cut);
  const auto& groups = planner_.groups();
  return {std::move(small),
          cut,
          decisions(),
          layers(),
          size_of(planner_.cost(), all_units(groups)),
          size_of(planner_.cost(), kept_units(groups, plan_.masks))};
}

}  // namespace prunex::prune
