// Eq. 10 and 14: the masks that nodes agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "prunex/sparsity/projection.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

enum class MaskRule {
  kJoint,  ///< scores are summed over nodes, one common top-k: the same masks everywhere
  kUnion,  ///< the paper: every node its own top-k; the global mask is their OR
};

/// Chooses masks from whole scores, double[size] per group: `progress` in (0, 1] of the way to the final ones. The same
/// on every rank for the same scores.
using UnitSelector = std::function<sparsity::Masks(const std::vector<at::Tensor>& scores, double progress)>;

/// Scores the units of a whole model: double[size] per group, on the CPU; the highest survive. All ranks of `node` call
/// together with the same parameters, without gradients; buffers may be each rank's own.
using UnitScorer = std::function<std::vector<at::Tensor>(const Weights& candidate, comm::Communicator& node)>;

/// Which scores decide the final masks.
enum class FreezeMasks { kScores, kLastGlobal };

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct MaskOptions {
  std::vector<sparsity::Group> groups;  ///< empty: nothing is pruned
  sparsity::KeepSchedule keep;
  MaskRule rule = MaskRule::kJoint;
  UnitScorer score;                ///< null: squared norms, which need no rank to hold the whole candidate
  UnitSelector select;             ///< null: of every group its share; else what the masks of all nodes together keep
  int64_t freeze_after = kNever;   ///< the freeze happens in the exchange after this one
  int64_t freeze_when_stable = 0;  ///< freeze once so many exchanges in a row changed no mask; 0: off
  FreezeMasks final = FreezeMasks::kScores;
  bool mask_theta = true;  ///< theta and u are masked at the freeze, theta stays on the mask
};

/// Keeps the node's and the global masks of all groups. Scores are double[size] per group, and a rank's share: their
/// sum over the ranks of a node is what the node's candidate scores.
class MaskConsensus {
 public:
  explicit MaskConsensus(MaskOptions options);

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
  void set(sparsity::Masks node, sparsity::Masks global);

  MaskOptions options_;
  sparsity::Masks node_, global_;
  int64_t changes_ = 0;
  int64_t stable_ = 0;
};

/// 0/1 per entry of the parameters that lost units: LocalTerms::masks.
TensorDict gradient_masks(const sparsity::Supports& alive, const TensorDict& params);

}  // namespace prunex::strategies
