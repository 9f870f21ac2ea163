// Which units go: from scores to masks that meet a target.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/cost.h"
#include "prunex/prune/groups.h"
#include "prunex/prune/limits.h"
#include "prunex/prune/ranking.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// What a plan aims at.
struct Target {
  enum class Kind {
    kRatio,       ///< `share` of the units of every scope go
    kMacs,        ///< at most `count` operations are left
    kParameters,  ///< at most `count` parameters are left
  };
  Kind kind = Kind::kRatio;
  double share = 0.5;
  int64_t count = 0;
};

/// A cost that a network cannot be pruned to.
struct OutOfReach : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Units are compared within a scope only.
enum class Scope {
  kLocal,       ///< a group
  kIsomorphic,  ///< groups of one structure: the same kinds of layers on the same sides
  kGlobal,      ///< all groups
};

struct PlanOptions {
  Scope scope = Scope::kLocal;
  LimitOptions limits;
  GroupOptions groups;
  /// Torch-Pruning's choices: truncated counts, rounding down, no limit on what a ratio takes from a group but that a
  /// group which would vanish stays whole; its count of operations.
  bool tp_compat = false;
};

/// Which units stay.
struct Plan {
  sparsity::Masks masks;
  std::vector<int64_t> asked;  ///< by group: units to keep, as target and ranking say, before limits and rounding
};

/// Knows a network's groups and costs, and plans as often as needed. Plans depend on the arguments only, ties are
/// broken by group, in the order of groups(), and unit: the same scores give the same plan on every rank.
class Planner {
 public:
  /// Options out of range and patterns that match nothing are std::invalid_argument.
  /// `dependencies` are the graph's, found with the same GroupOptions.
  Planner(const program::Graph& graph, const std::vector<DependencyGroup>& dependencies, const PlanOptions& options);

  /// The groups that can be cut; those that the options spare are among them.
  const std::vector<sparsity::Group>& groups() const { return groups_; }
  const std::vector<Limit>& limits() const { return limits_; }
  const Cost& cost() const { return cost_; }

  /// Masks with alive units of `alive` only. `scores` are per unit of groups(), empty where nothing is known: such a
  /// group stays whole. The target is of the whole network; with `progress` < 1, so much of the way to it.
  /// Ratios are met within half a unit per scope. Costs are met by the fewest removals: with one unit more (or one
  /// multiple more, where counts are rounded) the network would be too large. OutOfReach says what is left at least.
  Plan plan(const sparsity::Masks& alive, const std::vector<UnitScores>& scores, const Target& target,
            double progress = 1) const;

 private:
  struct Problem;

  std::string scope_of(size_t group) const;
  int64_t spare(size_t group, const Problem& problem) const;
  Ranking rank(const Problem& problem, bool limited) const;
  std::vector<int64_t> by_ratio(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> by_cost(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> select(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> rounded(const std::vector<int64_t>& removed, const std::vector<int64_t>& alive) const;
  int64_t limit_of_cost(const Problem& problem) const;
  const Count& count_of(const Target& target) const;

  PlanOptions options_;
  std::vector<sparsity::Group> groups_;
  std::vector<Limit> limits_;
  Cost cost_;
};

/// Units alive by group.
std::vector<int64_t> kept_units(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks);

}  // namespace prunex::prune
