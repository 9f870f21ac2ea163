// Eq. 10 and 14: the masks that nodes agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "prunex/sparsity/projection.h"
#include "prunex/strategies/rail_exchange.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

enum class MaskRule {
  kJoint,  ///< scores are summed over nodes, one common top-k: the same masks everywhere
  kUnion,  ///< the paper: every node its own top-k; the global mask is their bitwise OR
};

/// Chooses masks from whole scores, double[size] per group: `progress` in (0, 1] of the way to the final ones. The same
/// on every rank for the same scores.
using UnitSelector = std::function<sparsity::Masks(const std::vector<at::Tensor>& scores, double progress)>;

/// Keeps the node's and the global masks of all groups. Scores are double[size] per group, and a rank's share: their
/// sum over the ranks of a node is what the node's candidate scores.
class MaskConsensus {
 public:
  /// Without `select` the best units of every group live, as many as its `keep` and the schedule say.
  MaskConsensus(std::vector<sparsity::Group> groups, sparsity::KeepSchedule schedule, MaskRule rule,
                UnitSelector select = nullptr);

  /// New masks for exchange k. Collective.
  void update(int64_t k, const std::vector<at::Tensor>& scores, RailExchange& ranks);
  /// Final masks at the final share of units: from the scores summed over nodes. Collective.
  void freeze(const std::vector<at::Tensor>& scores, RailExchange& ranks);
  /// Final masks: the last global ones.
  void freeze();
  /// Final masks from whole scores that are the same on all ranks.
  void freeze(const std::vector<at::Tensor>& scores);

  /// Whether units go in exchange k.
  bool prunes_at(int64_t k) const;
  /// For exchanges that do not prune.
  std::vector<at::Tensor> equal_scores() const;

  /// Puts back what node(), global() and stable() were.
  void restore(sparsity::Masks node, sparsity::Masks global, int64_t stable);

  const sparsity::Masks& node() const { return node_; }
  const sparsity::Masks& global() const { return global_; }
  const std::vector<sparsity::Group>& groups() const { return groups_; }
  /// Units whose global mask the last update() changed.
  int64_t changes() const { return changes_; }
  /// Updates in a row that changed nothing.
  int64_t stable() const { return stable_; }
  /// Kept units / all units; 1 without groups.
  double kept_share() const;

 private:
  sparsity::Masks select(const std::vector<at::Tensor>& scores, int64_t k) const;
  void set(sparsity::Masks node, sparsity::Masks global);

  std::vector<sparsity::Group> groups_;
  sparsity::KeepSchedule schedule_;
  MaskRule rule_;
  UnitSelector select_;
  sparsity::Masks node_, global_;
  int64_t changes_ = 0;
  int64_t stable_ = 0;
};

}  // namespace prunex::strategies
