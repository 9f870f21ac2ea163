#include "prunex/prune/plan.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>

namespace prunex::prune {

/// A unit that may go.
struct Candidate {
  double score = 0;
  size_t group = 0;
  int64_t unit = 0;
};

/// Groups whose units are compared.
struct RankedScope {
  std::vector<Candidate> order;  ///< lowest first; of equal scores the earlier group, then the earlier unit
  int64_t units = 0;             ///< of all groups of the scope, in the whole network
  int64_t alive = 0;             ///< of those, still there
  double ratio = -1;             ///< of its own; below 0: the target's
};

namespace {

using sparsity::Group;
using sparsity::Masks;
using Counts = std::vector<int64_t>;

Counts count_by_group(const std::vector<size_t>& order, int64_t length, size_t groups) {
  Counts counts(groups, 0);
  for (int64_t i = 0; i < length; ++i) ++counts[order[i]];
  return counts;
}

void add(Counts& counts, const RankedScope& scope, int64_t removals) {
  const auto length = std::min(removals, static_cast<int64_t>(scope.order.size()));
  for (int64_t i = 0; i < length; ++i) ++counts[scope.order[i].group];
}

/// Units of the scope to remove now so that `ratio` of all of them are gone.
int64_t removals(const RankedScope& scope, double ratio, bool truncate) {
  const double left = static_cast<double>(scope.units) * (1 - ratio);
  const double keep = truncate ? std::trunc(left) : std::floor(left + 0.5);
  return std::max<int64_t>(0, scope.alive - static_cast<int64_t>(keep));
}

/// Nearest multiple, ties up, at least one and not below the floor.
int64_t round_nearest(int64_t kept, const Limit& limit, int64_t alive) {
  const int64_t m = limit.multiple;
  int64_t rounded = std::max(m, (2 * kept + m) / (2 * m) * m);
  if (rounded < limit.floor) rounded += m;
  return std::min(rounded, alive);
}

/// Torch-Pruning's: down; a group of which nothing would be left stays. Not below the floor, which it does not know.
int64_t round_down(int64_t kept, const Limit& limit, int64_t alive) {
  const int64_t rounded = kept - kept % limit.multiple;
  if (rounded <= 0) return alive;
  return rounded < limit.floor ? std::min(rounded + limit.multiple, alive) : rounded;
}

/// The `kept` units of the highest scores among those alive; of equal ones the later.
at::Tensor best(const at::Tensor& alive, const UnitScores& scores, int64_t kept) {
  std::vector<int64_t> units;
  for (int64_t unit = 0; unit < alive.numel(); ++unit) {
    if (alive.const_data_ptr<bool>()[unit]) units.push_back(unit);
  }
  const auto gone = static_cast<int64_t>(units.size()) - kept;
  std::stable_sort(units.begin(), units.end(), [&](int64_t a, int64_t b) { return scores[a] < scores[b]; });
  at::Tensor mask = alive.clone();
  for (int64_t i = 0; i < gone; ++i) mask.data_ptr<bool>()[units[i]] = false;
  return mask;
}

Counts operator+(Counts a, const Counts& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
  return a;
}

/// The smallest of 0 … `last` that fits, if those beyond a fitting one fit, too, and `last` does.
template <class Fits>
int64_t first_fit(int64_t last, const Fits& fits) {
  int64_t low = 0, high = last;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// A candidate at its place in the common order.
struct Place {
  double gone = 0;  ///< share of the scope's units that are gone then
  const Candidate* candidate = nullptr;
};

auto key(const Candidate& candidate) {
  return std::make_tuple(candidate.score, candidate.group, candidate.unit);
}

/// Sorts, and leaves out what a group cannot lose: after `spare[group]` removals its other units stay.
void finish(RankedScope& scope, const std::vector<int64_t>& spare) {
  std::sort(scope.order.begin(), scope.order.end(),
            [](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  std::map<size_t, int64_t> taken;
  std::erase_if(scope.order,
                [&](const Candidate& candidate) { return ++taken[candidate.group] > spare[candidate.group]; });
}

/// The groups of all candidates of scopes without a ratio of their own, such that scopes shrink at an equal pace.
std::vector<size_t> merged(const Ranking& ranking) {
  std::vector<Place> places;
  for (const RankedScope& scope : ranking) {
    if (scope.ratio >= 0) continue;
    int64_t gone = scope.units - scope.alive;
    for (const Candidate& candidate : scope.order) {
      places.push_back({static_cast<double>(++gone) / static_cast<double>(scope.units), &candidate});
    }
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.gone != b.gone ? a.gone < b.gone : key(*a.candidate) < key(*b.candidate);
  });
  std::vector<size_t> groups;
  for (const Place& place : places) groups.push_back(place.candidate->group);
  return groups;
}

}  // namespace

Counts kept_units(const std::vector<Group>& groups, const Masks& masks) {
  Counts kept;
  for (const Group& group : groups) {
    const at::Tensor& mask = masks[group.name];
    kept.push_back(std::count(mask.const_data_ptr<bool>(), mask.const_data_ptr<bool>() + mask.numel(), true));
  }
  return kept;
}

struct Planner::Problem {
  const Masks& masks;
  Counts alive;
  const std::vector<UnitScores>& scores;
  Target target;
  double progress;
  bool limited = true;  ///< by limits and rounding; else a group keeps one unit
};

const std::vector<std::pair<std::string, Scope>>& scopes() {
  static const std::vector<std::pair<std::string, Scope>> words{
      {"local", Scope::kLocal}, {"isomorphic", Scope::kIsomorphic}, {"global", Scope::kGlobal}};
  return words;
}

Planner::Planner(const channels::Analysis& analysis, const PlanOptions& options)
    : options_(options),
      groups_(analysis.removable()),
      cost_(cost_of(analysis, options.tp_compat ? Counting::kTorchPruning : Counting::kMacs)) {
  const std::vector<Limit> limits = limits_of(analysis, options.limits);
  for (size_t group = 0; group < limits.size(); ++group) {
    if (analysis.groups()[group].prunable) limits_.push_back(limits[group]);
  }
}

std::string Planner::scope_of(size_t group) const {
  if (limits_[group].ratio || options_.scope == Scope::kLocal) return groups_[group].name;
  return options_.scope == Scope::kIsomorphic ? limits_[group].scope : "";
}

/// Units that the group can lose. Torch-Pruning's ratios take all, and rounding then gives them back.
int64_t Planner::spare(size_t group, const Problem& problem) const {
  const int64_t alive = problem.alive[group];
  const int64_t spare = std::max<int64_t>(0, alive - limits_[group].floor);
  const bool all = options_.tp_compat && problem.target.kind == Target::Kind::kRatio && spare > 0;
  return all ? alive : spare;
}

/// Without limits, every unit of a group may go.
Ranking Planner::rank(const Problem& problem) const {
  std::map<std::string, RankedScope> scopes;
  Counts spares = problem.alive;
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (!limits_[group].reason.empty() || problem.scores[group].empty()) continue;
    RankedScope& scope = scopes[scope_of(group)];
    if (limits_[group].ratio) scope.ratio = *limits_[group].ratio;
    scope.units += groups_[group].size;
    scope.alive += problem.alive[group];
    if (problem.limited) spares[group] = spare(group, problem);
    const bool* mask = problem.masks[groups_[group].name].const_data_ptr<bool>();
    for (int64_t unit = 0; unit < groups_[group].size; ++unit) {
      if (!mask[unit]) continue;
      const double score = problem.scores[group][unit];
      if (std::isnan(score)) {
        throw std::invalid_argument(
            fmt::format("the score of unit {} of {} is not a number: its weights are none, or their squares "
                        "too large",
                        unit, groups_[group].name));
      }
      scope.order.push_back({score, group, unit});
    }
  }
  Ranking ranking;
  for (auto& [name, scope] : scopes) {
    finish(scope, spares);
    ranking.push_back(std::move(scope));
  }
  return ranking;
}

/// Removals of the scopes that a ratio decides about.
Counts Planner::by_ratio(const Ranking& ranking, const Problem& problem) const {
  Counts removed(groups_.size(), 0);
  for (const RankedScope& scope : ranking) {
    const bool own = scope.ratio >= 0;
    if (!own && problem.target.kind != Target::Kind::kRatio) continue;
    const double ratio = problem.progress * (own ? scope.ratio : problem.target.share);
    add(removed, scope, removals(scope, ratio, options_.tp_compat));
  }
  return removed;
}

const Count& Planner::count_of(const Target& target) const {
  return target.kind == Target::Kind::kMacs ? cost_.macs : cost_.parameters;
}

int64_t Planner::limit_of_cost(const Problem& problem) const {
  if (problem.progress >= 1) return problem.target.count;
  const int64_t whole = count_of(problem.target)(all_units(groups_));
  return whole - static_cast<int64_t>(problem.progress * static_cast<double>(whole - problem.target.count));
}

/// Removals of the other scopes: the fewest that meet the cost.
Counts Planner::by_cost(const Ranking& ranking, const Problem& problem) const {
  const Counts decided = by_ratio(ranking, problem);
  const std::vector<size_t> order = merged(ranking);
  const Count& count = count_of(problem.target);
  const int64_t limit = limit_of_cost(problem);
  const auto left = [&](int64_t length) {
    return count(kept(count_by_group(order, length, groups_.size()) + decided, problem));
  };
  const auto all = static_cast<int64_t>(order.size());
  if (left(all) > limit) {
    throw OutOfReach(fmt::format("at least {} of {} {} are left, wanted {} at most", left(all),
                                 count(all_units(groups_)),
                                 problem.target.kind == Target::Kind::kMacs ? "MACs" : "parameters", limit));
  }
  const int64_t length = first_fit(all, [&](int64_t candidate) { return left(candidate) <= limit; });
  return count_by_group(order, length, groups_.size()) + decided;
}

Counts Planner::select(const Ranking& ranking, const Problem& problem) const {
  return problem.target.kind == Target::Kind::kRatio ? by_ratio(ranking, problem) : by_cost(ranking, problem);
}

/// What is left of each group.
Counts Planner::kept(const Counts& removed, const Problem& problem) const {
  Counts kept = problem.alive;
  const auto round = options_.tp_compat ? round_down : round_nearest;
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (removed[group] == 0) continue;
    const int64_t alive = kept[group], left = alive - removed[group];
    kept[group] = problem.limited ? round(left, limits_[group], alive) : std::max<int64_t>(1, left);
  }
  return kept;
}

Plan Planner::plan(const Masks& alive, const std::vector<UnitScores>& scores, const Target& target,
                   double progress) const {
  TORCH_CHECK(scores.size() == groups_.size(), "[prune] scores of ", scores.size(), " groups, wanted ", groups_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto units = static_cast<int64_t>(scores[group].size());
    TORCH_CHECK(units == 0 || units == groups_[group].size, "[prune] scores of ", units, " units of ",
                groups_[group].name, ", wanted ", groups_[group].size);
  }
  Problem problem{alive, kept_units(groups_, alive), scores, target, progress};
  const Counts removed = select(rank(problem), problem);
  const Counts left = kept(removed, problem);
  Counts wished = removed;
  const bool limits_belong = options_.tp_compat && target.kind != Target::Kind::kRatio;  // whole groups come back
  if (!limits_belong) {
    problem.limited = false;
    wished = select(rank(problem), problem);
  }
  Plan plan;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const at::Tensor& mask = alive[groups_[group].name];
    const bool stays = left[group] == problem.alive[group];
    plan.masks.insert(groups_[group].name, stays ? mask : best(mask, scores[group], left[group]));
    plan.asked.push_back(problem.alive[group] - wished[group]);
  }
  return plan;
}

}  // namespace prunex::prune
