// H-SADMM for all ranks in one process: docs/algorithm.md, section 3, as loops over nodes and ranks on whole tensors,
// without communication, packing or supports. Slow and plain: the oracle of hsadmm_test.cpp and, with rounded messages,
// of rounded_reference_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/strategies/rounded_mean.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {

class Reference {
 public:
  Reference(HsadmmOptions options, const comm::Layout& shape, at::ScalarType type = at::kDouble);

  /// One outer iteration on all ranks.
  void iterate();

  struct Rank {
    SmallProblem problem;
    Replica replica;
    TensorDict u;
  };
  struct Node {
    TensorDict candidate, z_node, z_node_before, v;  // candidate: also the means of buffers
    sparsity::Masks masks;
  };
  const Rank& rank(int node, int j) const { return ranks_[node][j]; }
  const Node& node(int i) const { return nodes_[i]; }
  const Weights& z() const { return z_; }
  const sparsity::Masks& masks() const { return masks_; }
  const std::map<std::string, admm::Penalties>& rho() const { return rho_; }
  const std::map<std::string, admm::Residuals>& residuals() const { return residuals_; }
  bool frozen() const { return frozen_; }
  int64_t mask_changes() const { return changes_; }
  bool in_admm(const std::string& name) const;
  /// What rounded messages left out so far; only with a payload other than fp32.
  const RoundedMean& rounded_mean() const { return *rounded_mean_; }

 private:
  double weight(size_t i) const;
  LocalTerms terms_of(int i, int j) const;
  void train();
  void make_candidates();
  void choose_masks();
  TensorDict alive() const;
  void freeze();
  void update_z();
  TensorDict mean_over_nodes();
  TensorDict rounded_mean_over_nodes();
  void update_duals();
  void measure_residuals();
  void adapt_penalties();
  void restart();
  admm::Penalties first_or_kappa_penalties(int64_t k) const;

  at::Tensor masked(const at::Tensor& tensor, const std::string& name, const sparsity::Masks& masks) const;
  at::Tensor unit_scores(const sparsity::Group& group, const TensorDict& tensors) const;
  at::Tensor best_units(const at::Tensor& scores, int64_t kept) const;

  HsadmmOptions options_;
  comm::Layout shape_;
  std::optional<RoundedMean> rounded_mean_;
  std::vector<std::vector<Rank>> ranks_;
  std::vector<Node> nodes_;
  Weights z_;
  TensorDict z_before_, outer_;
  sparsity::Masks masks_;
  std::map<std::string, admm::Penalties> rho_;
  std::map<std::string, admm::Residuals> residuals_;
  bool duals_, frozen_ = false;
  int64_t k_ = 0, changes_ = 0;
};

}  // namespace prunex::strategies
