// Which units go: from scores to masks that meet a target.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/prune/cost.h"
#include "prunex/prune/importance.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// Of `round_to`: no layer has as many channels.
inline constexpr int64_t kMostMultiple = 65'536;

/// What the name patterns of a plan say; patterns are the shell's (*, ?, [ab]) and match a group's name or a layer
/// whose outputs it prunes.
struct LayerRatio {
  std::string pattern;
  double ratio = 0;  ///< share of the units to remove
};

struct LimitOptions {
  /// Channels that are left are multiples of so many, where layers have as many; kHardwareMultiple: by group size.
  int64_t round_to = 1;
  double max_ratio = 1;  ///< the largest share of a group's units that may go
  std::vector<LayerRatio> ratios;
  std::vector<std::string> ignore;
  std::map<std::string, std::string> whole = {};  ///< groups that stay as they are, by name alone, and why
};

inline constexpr int64_t kHardwareMultiple = 0;

struct Limit {
  std::vector<std::string> layers;  ///< whose outputs the group prunes
  int64_t floor = 1;                ///< units that stay in any case
  int64_t multiple = 1;             ///< what is left is a multiple of so many units
  std::optional<double> ratio;      ///< of its own
  std::string scope;                ///< equal for groups of one structure: kinds of layers and their sides
  std::string reason;               ///< why nothing may go; empty: something may
};

/// One for each of analysis.groups(). A pattern that matches no group, a name that none has, or a share outside [0, 1],
/// is a std::invalid_argument.
std::vector<Limit> limits_of(const channels::Analysis& analysis, const LimitOptions& options);

/// The names of those of analysis.groups() that these patterns name. Throws as limits_of().
std::set<std::string> ignored_groups(const channels::Analysis& analysis, const std::vector<std::string>& patterns);

/// Least number of units whose channels are a multiple of `round_to`, as in LimitOptions, in every layer that makes
/// or reads them.
int64_t multiple_of(const channels::DependencyGroup& group, const channels::Analysis& analysis, int64_t round_to);

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

/// By name: "local", "isomorphic", "global".
const std::vector<std::pair<std::string, Scope>>& scopes();

struct PlanOptions {
  Scope scope = Scope::kLocal;
  LimitOptions limits;
  /// Torch-Pruning's choices: truncated counts, rounding down, no limit on what a ratio takes from a group but that a
  /// group which would vanish stays whole; its count of operations.
  bool tp_compat = false;
};

/// Which units stay.
struct Plan {
  sparsity::Masks masks;
  std::vector<int64_t> asked;  ///< by group: units to keep, as target and ranking say, before limits and rounding
};

struct RankedScope;
using Ranking = std::vector<RankedScope>;

/// Knows a network's groups and costs, and plans as often as needed. Plans depend on the arguments only; of equal units
/// the one of the earlier group, in the order of groups(), and in a group the earlier one goes first: the same scores
/// give the same plan on every rank.
class Planner {
 public:
  /// Options out of range and patterns that match nothing are std::invalid_argument.
  Planner(const channels::Analysis& analysis, const PlanOptions& options);

  /// The groups that can be cut; those that the options spare are among them.
  const std::vector<sparsity::Group>& groups() const { return groups_; }
  const std::vector<Limit>& limits() const { return limits_; }
  const Cost& cost() const { return cost_; }

  /// Masks with alive units of `alive` only. `scores` are per unit of groups(), empty where nothing is known: such a
  /// group stays whole. The target is of the whole network; with `progress` < 1, so much of the way to it.
  /// Ratios are met within half a unit per scope. Costs are met by the fewest removals: with one unit more (or one
  /// multiple more, where counts are rounded) the network would be too large. OutOfReach says what is left at least.
  /// A score that is not a number is an std::invalid_argument.
  Plan plan(const sparsity::Masks& alive, const std::vector<UnitScores>& scores, const Target& target,
            double progress = 1) const;

 private:
  struct Problem;

  std::string scope_of(size_t group) const;
  int64_t spare(size_t group, const Problem& problem) const;
  Ranking rank(const Problem& problem) const;
  std::vector<int64_t> by_ratio(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> by_cost(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> select(const Ranking& ranking, const Problem& problem) const;
  std::vector<int64_t> kept(const std::vector<int64_t>& removed, const Problem& problem) const;
  int64_t limit_of_cost(const Problem& problem) const;
  const Count& count_of(const Target& target) const;

  PlanOptions options_;
  std::vector<sparsity::Group> groups_;
  std::vector<Limit> limits_;
  Cost cost_;
};

/// "ratio": a share of the units; "macs", "parameters": a share up to 1 of what there is, or a count; "speed-up":
/// multiply-accumulates before over those after. Another name or a value out of range is a std::invalid_argument that
/// begins with `option`, as in "`macs`".
Target target_named(const std::string& option, const std::string& name, double value, const Planner& planner);

/// OutOfReach as std::invalid_argument that begins with `option`, if even equal scores, 1 for units that may go, cannot
/// meet the target: said before training, not after it.
void expect_in_reach(const std::string& option, const Planner& planner, const std::vector<UnitScores>& scores,
                     const Target& target);

/// Units alive by group.
std::vector<int64_t> kept_units(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks);

}  // namespace prunex::prune
