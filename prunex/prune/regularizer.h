// Regularisers of sparse training: gradients that drive whole units towards zero, so that removing them costs little.
// Formulas and defaults: docs/pruning.md, "Sparse training".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/prune/importance.h"
#include "prunex/sparsity/cut.h"
#include "prunex/tensors.h"

namespace prunex::prune {

enum class Penalty {
  kNone,
  kBnScale,       ///< strength |gamma| of every batch norm (Liu et al. 2017)
  kGroupBnScale,  ///< strength times the norm of a unit's gammas over the batch norms of its group
  kGroupNorm,     ///< strength 2^(4 t), t: 1 for the weakest unit of a group, 0 for the strongest (arXiv 2301.12900)
  kGrowing,       ///< as decay that grows every epoch, the more the weaker the unit (arXiv 2012.09243)
  kGroupLasso,    ///< strength times the norm of a unit's weights (arXiv 1901.09290)
};

/// "none", "bn_scale", "group_bn_scale", "group_norm", "growing", "group_lasso"; else std::invalid_argument that lists
/// them.
Penalty penalty_named(const std::string& name);
std::vector<std::string> penalty_names();

/// A strength that is usual for it; of kGroupLasso 0.
double usual_strength(Penalty penalty);

struct RegularizerOptions {
  Penalty penalty = Penalty::kNone;
  double strength = 5e-4;  ///< kGroupLasso, 0: chosen at the first refresh, so that the penalty is `loss_share` of all
  double growth = 1e-4;    ///< kGrowing: of the weakest unit, per epoch
  double loss_share = 0.2;
  std::vector<std::string> ignore = {};  ///< groups without a penalty, as LimitOptions have them
  double first_loss = 0;  ///< cross-entropy of an untrained network, for loss_share: ln of the number of classes
};

/// Coefficients per unit of every prunable group, spread over the rows and channels of the weights that hold the unit:
/// gradient += (r_row + c_channel) w; of kBnScale gradient += r sign(w). Biases, unprunable channels and what no group
/// knows are left alone; all numbers stay finite.
class Regularizer {
 public:
  /// Throws std::invalid_argument if there is nothing that the penalty could make smaller, or nothing to choose a
  /// strength by.
  Regularizer(const RegularizerOptions& options, const channels::Analysis& analysis);

  /// New coefficients from weights that all ranks share; nothing is added before the first call. `epochs`: passed since
  /// the last call. Throws std::invalid_argument for weights of another size.
  void refresh(const Weights& weights, double epochs);

  bool has_coefficients() const { return !coefficients_.empty(); }

  /// In one pass over the memory of weights and gradients. `factor` scales all coefficients. Throws as refresh().
  void add_to_gradients(TensorDict& params, double factor) const;

  /// The network was cut, and this is what it is now. Its groups stay what they were found to be, with fewer units.
  void cut(const channels::Analysis& analysis, const sparsity::Cut& cut);

  /// "strength", and the coefficients as "AXIS/TENSOR"; and back. Throws std::invalid_argument for anything else.
  TensorDict state() const;
  void load(const TensorDict& state);

 private:
  using Place = std::pair<std::string, int64_t>;  // tensor, axis

  bool is_of_scales() const;
  void find_groups(const channels::Analysis& analysis);
  void note(const program::Graph& graph);
  void expect_noted(const TensorDict& params) const;
  bool counts(const std::string& tensor) const;
  void choose_strength(const std::vector<UnitScores>& scores);
  std::vector<double> coefficients(const UnitScores& scores) const;
  const std::map<Place, at::Tensor>& placed_with(const at::Tensor& weight) const;
  void spread(const sparsity::Group& group, const std::vector<double>& by_unit, const Weights& weights);

  RegularizerOptions options_;
  std::vector<sparsity::Group> groups_;
  std::vector<std::string> weights_;                   // what may carry coefficients, in a group or not; sorted
  std::map<std::string, std::vector<int64_t>> sizes_;  // of all parameters
  std::unique_ptr<Importance> importance_;
  std::map<Place, at::Tensor> coefficients_;    // double per position, on the CPU
  mutable std::map<Place, at::Tensor> placed_;  // the same where the weights are; empty until they are wanted there
};

}  // namespace prunex::prune
