// H-SADMM: hierarchical structured ADMM (arXiv 2512.14628, corrected; docs/algorithm.md). Settings of it are the flat
// form, `consensus.flat`, and, with `consensus.penalty.kappa` 0, local SGD, `after_freeze` kAverage, and DiLoCo,
// kNesterov; `masks.groups` prune in each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "prunex/admm/residuals.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/projection.h"
#include "prunex/strategies/exchange/payload.h"
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

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct MaskOptions {
  std::vector<sparsity::Group> groups;  ///< empty: nothing is pruned
  sparsity::KeepSchedule keep;
  MaskRule rule = MaskRule::kJoint;
  UnitScorer score;                ///< null: squared norms, which need no rank to hold the whole candidate
  UnitSelector select;             ///< null: of every group its share; else what the masks of all nodes together keep
  int64_t freeze_after = kNever;   ///< the freeze happens in the exchange after this one
  int64_t freeze_when_stable = 0;  ///< freeze once so many exchanges in a row changed no mask; 0: off
  bool mask_theta = true;          ///< theta and u are masked at the freeze, theta stays on the mask
};

/// Where a rank's theta starts an outer iteration.
enum class StartFrom {
  kZ,      ///< from the global model: masks settle at any kappa
  kTheta,  ///< from its own theta (the paper): with small kappa pruned units return through their duals
};

/// What happens to tensors outside every group (batch norm, biases, stem, classifier).
enum class AuxTensors {
  kAverage,  ///< plain mean over all ranks
  kAdmm,     ///< duals and penalties like the rest; they lag
};

struct ConsensusOptions {
  admm::PenaltyOptions penalty;  ///< penalty.kappa == 0 switches ADMM off: no duals, no proximal term
  double lambda = 0;             ///< weight decay inside Eq. 9
  bool as_printed = false;       ///< Eq. 9 as the paper prints it
  bool flat = false;             ///< flat consensus, the paper's "AR": one node that holds all ranks
  StartFrom start_from = StartFrom::kZ;
  AuxTensors aux = AuxTensors::kAverage;
  double tolerance = 0;  ///< relative, of the residuals; 0: never stop early
};

/// What an exchange is once the masks are final.
enum class AfterFreeze {
  kNesterov,  ///< masked local SGD with DiLoCo's outer step
  kAverage,   ///< masked local SGD
  kAdmm,      ///< go on with duals (the paper)
};

/// DiLoCo's outer step: Nesterov's method on the mean change of an exchange.
struct OuterStep {
  double rate = 0.7;
  double momentum = 0.9;
  int64_t from = 0;  ///< apply it from this exchange on; 0: from the freeze, with nothing to freeze from the first
};

struct HsadmmOptions {
  LocalSgd local;
  ExchangeOptions exchange;
  MaskOptions masks;
  ConsensusOptions consensus;
  OuterStep outer;
  AfterFreeze after_freeze = AfterFreeze::kNesterov;
  /// Once no duals are left: local steps of the next interval that run beside an exchange; fewer than local.steps. 0:
  /// they wait for it. The exchange is then reported after the last of them; the run's last one is waited for.
  int64_t overlap = 0;

  /// The step after which the exchange of `step` is over; itself where it is waited for, as the last one is.
  int64_t lands_at(int64_t step) const;
};

/// Without groups and duals nothing has to settle: all exchanges are those after the freeze, unless the options name
/// one for it.
HsadmmOptions settled(HsadmmOptions options);

/// Throws std::invalid_argument for options that make no sense together, or beside these parameters.
void check(const HsadmmOptions& options, const TensorDict& params);

/// Parameters under a proximal term: the members of groups, or all.
std::vector<std::string> names_in_consensus(const HsadmmOptions& options, const TensorDict& params);

/// Broadcasts rank 0's weights, so that all ranks start from one theta; ranks have the same options. Throws
/// std::invalid_argument for options that make no sense together.
std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options);

}  // namespace prunex::strategies
