// The ADMM in H-SADMM: scaled duals, node models and penalties of the tensors in consensus. Without it an exchange is
// local SGD with masks.
#pragma once

#include <string>
#include <vector>

#include "prunex/admm/residuals.h"
#include "prunex/admm/updates.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/exchange/row_shards.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// One rank's share: u and the node's model are whole on every rank, v is kept of the rows of its shard alone. All
/// tensors named `work` are whole; of them only the own shard's rows are read or written where `rows` are meant.
class Duals {
 public:
  /// names: the parameters in consensus; start: all parameters at the start. What is referred to must outlive it.
  Duals(const ConsensusOptions& options, const LocalSgd& local, const comm::Layout& layout, const RowShards& shards,
        std::vector<std::string> names, const TensorDict& start);

  /// Whether the tensor is in consensus.
  bool hold(const std::string& name) const { return u_.find(name) != nullptr; }

  /// Of a parameter in consensus.
  const at::Tensor& u(const std::string& name) const { return u_[name]; }
  /// Eq. 9 on the rows of `work`, which hold the node's sum of theta + u.
  void update_candidate(const TensorDict& work, const TensorDict& z);
  /// The rows of `work` are those of the node's next model: notes how far it goes.
  void note_candidate(const TensorDict& work);
  /// To be written after that, from every rank's rows.
  TensorDict& z_node() { return z_node_; }
  const TensorDict& z_node() const { return z_node_; }
  /// Rows of work += v, which a mean that weighs this node with `share` then counts in full.
  void add_v(const TensorDict& work, double share) const;

  /// v <- 0, on all nodes.
  void forget_v();

  /// Eq. 12 and 13, with `mean` as the z that nodes agree on, and a step of v in proportion to the share.
  void update(const TensorDict& theta, const TensorDict& mean, double share);
  /// A tensor of z has changed: its rows before and now.
  void note_z(const std::string& name, const at::Tensor& before, const at::Tensor& now);
  /// Residuals of this exchange, and the penalties of the next iteration. Collective.
  void finish(RailExchange& ranks, Exchange& exchange);
  /// rho1 (theta - anchor), Eq. 8, for the next local steps. Anchors keep their memory as long as their sizes: steps
  /// that were recorded read it.
  void set_terms(LocalTerms& terms) const;

  /// What is dead in `support` has no duals; u keeps its own if the local weights stay unmasked.
  void mask(const sparsity::Supports& support, bool mask_u);
  /// `shards` are those before the cut.
  void cut(const sparsity::Cut& cut);

  void save(State& state) const;
  void load(const State& state);

 private:
  int mine() const { return layout_.local_rank(); }
  admm::NodesAndRanks cluster() const { return {layout_.nodes(), layout_.mean_node_size()}; }
  admm::Penalties rho(size_t t) const { return admm::in_force(rho_[t], cluster()); }
  void sum_norms(RailExchange& ranks);
  void report(Exchange& exchange) const;
  void adapt_penalties(const Exchange& exchange);
  admm::StepSizes steps_of(int64_t iteration) const;
  bool tests_convergence() const;

  const ConsensusOptions& options_;
  const LocalSgd& local_;
  const comm::Layout& layout_;  // of the groups as they are now
  const RowShards& shards_;
  std::vector<std::string> names_;
  double largest_rate_ = 0;  // learning rate of the whole run
  TensorDict u_, z_node_;
  TensorDict v_;                           // rows
  std::vector<admm::Penalties> rho_;       // kept where they are not in force, too
  std::vector<admm::SquaredNorms> norms_;  // of this exchange: this rank's, then the sums over ranks
  admm::NormReader reader_;                // of those that are still on a device
};

}  // namespace prunex::strategies
