// A convex problem per rank, small enough to write every algorithm down next to it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

inline constexpr double kMomentum = 0.9, kDecay = 0.01;

/// Learning rate of step 1, 2, …; falls, so that iterations differ in their sum.
double learning_rate(int64_t step);

/// f(theta) = 1/2 |d (theta - c)|^2 over the tensors of tests/groups.h, d and c drawn per rank; and one running
/// statistic that follows theta and the rank, with its counter of steps.
class SmallProblem {
 public:
  explicit SmallProblem(int rank, at::ScalarType type = at::kDouble);

  /// Different on every rank, as if each had drawn its own.
  Replica initial_replica() const;
  /// Of f and weight decay.
  TensorDict gradients(const TensorDict& params) const;
  /// Momentum SGD with weight decay on f and the terms, steps first … last.
  void train(Replica& replica, const LocalTerms& terms, int64_t first, int64_t last) const;
  /// The minimum of f and the terms, entry by entry.
  void minimise(Replica& replica, const LocalTerms& terms) const;
  /// The problem on what a cut leaves of the tensors.
  void cut(const sparsity::Cut& cut);
  /// The minimum of the sum of f over problems.
  static TensorDict common_minimum(const std::vector<SmallProblem>& problems);

 private:
  int rank_;
  TensorDict centre_, curvature_;  // c, d^2
};

/// One per rank.
std::vector<SmallProblem> problems_of(int ranks);

/// 3 local steps, 6 exchanges, the last one short: a freeze in the middle.
HsadmmOptions default_options();
/// The same without ADMM: local SGD.
HsadmmOptions averaging_options();
/// The paper's form: union of hard masks of independent groups, theta of its own, residual balancing, duals for ever.
HsadmmOptions paper_options();

/// All of a state; names are unique.
TensorDict merged(const State& state);

/// What one rank has after an exchange.
struct Snapshot {
  TensorDict theta, buffers, momentum;
  TensorDict state;  ///< names as in Strategy::state()
  sparsity::Masks masks;
  std::vector<double> next_rho1;
  Exchange exchange;
  int64_t rail_payload = 0, rail_sent = 0;  ///< bytes of this exchange
  int64_t sent_to_nodes = 0;                ///< bytes of this exchange that left the node, in any group
  int64_t copied = 0;  ///< floating-point entries that the exchange moved in memory: copied, packed, unpacked
};
/// After every exchange; one last entry is after finish().
using History = std::vector<Snapshot>;

/// What the removable groups of `options` lose under final masks; the running statistic goes with "coupled".
sparsity::Cut cut_of(const HsadmmOptions& options, const sparsity::Masks& masks, const Weights& weights);

enum class LocalPhase {
  kTrain,
  kTrainAndCut,  ///< the same; everything is cut when the masks are final
  kMinimise,
};

/// Runs the strategy on nodes x ranks over TCP until total_steps; one history per rank. The v of a node, and
/// what its rounded messages left out, is whole in the states of all its ranks.
std::vector<History> run_on_ranks(int nodes, int ranks_per_node, const HsadmmOptions& options,
                                  LocalPhase phase = LocalPhase::kTrain, at::ScalarType type = at::kDouble);
std::vector<History> run_on_ranks(const comm::Layout& shape, const HsadmmOptions& options,
                                  LocalPhase phase = LocalPhase::kTrain, at::ScalarType type = at::kDouble);

}  // namespace prunex::strategies
