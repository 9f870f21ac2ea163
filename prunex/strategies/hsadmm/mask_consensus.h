// Eq. 10 and 14: the masks that nodes agree on.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/sparsity/projection.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// Keeps the node's and the global masks of all groups. Scores are double[size] per group, and a rank's share: their
/// sum over the ranks of a node is what the node's candidate scores.
class MaskConsensus {
 public:
  explicit MaskConsensus(MaskOptions options);

  /// New masks for exchange k. Collective.
  void update(int64_t k, const std::vector<at::Tensor>& scores, RailExchange& ranks);
  /// Final masks at the final share of units: from the scores summed over nodes. Collective.
  void freeze(const std::vector<at::Tensor>& scores, RailExchange& ranks);
  /// Final masks from whole scores that are the same on all ranks.
  void freeze(const std::vector<at::Tensor>& scores);

  /// Whether units go in exchange k.
  bool prunes_at(int64_t k) const;
  /// Whether the masks become final in exchange k, the next one.
  bool freezes_at(int64_t k) const;
  /// By the options' scorer: this rank's share of them. Collective within the node.
  std::vector<at::Tensor> shares_of_scores(const Weights& candidate, RailExchange& ranks) const;
  /// For exchanges that do not prune.
  std::vector<at::Tensor> equal_scores() const;

  void save(State& state) const;
  void load(const State& state, int64_t stable);

  /// What the node's own masks leave of `params`, where nodes have masks of their own; else `global`.
  sparsity::Supports support_of_node(const sparsity::Supports& global, const TensorDict& params) const;

  const sparsity::Masks& node() const { return node_; }
  const sparsity::Masks& global() const { return global_; }
  const std::vector<sparsity::Group>& groups() const { return options_.groups; }
  /// Units whose global mask the last update() changed.
  int64_t changes() const { return changes_; }
  /// Updates in a row that changed nothing.
  int64_t stable() const { return stable_; }
  /// Kept units / all units; 1 without groups.
  double kept_share() const;

 private:
  sparsity::Masks select(const std::vector<at::Tensor>& scores, int64_t k) const;
  void set(int64_t k, sparsity::Masks node, sparsity::Masks global);

  MaskOptions options_;
  sparsity::Masks node_, global_;
  int64_t changes_ = 0;
  int64_t stable_ = 0;
};

/// 0/1 per entry of the parameters that lost units: LocalTerms::masks.
TensorDict gradient_masks(const sparsity::Supports& alive, const TensorDict& params);

}  // namespace prunex::strategies
