// H-SADMM: hierarchical structured ADMM (arXiv 2512.14628, corrected; docs/algorithm.md). Local SGD, DiLoCo and the
// flat form are settings of it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "prunex/admm/penalties.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/keep_schedule.h"
#include "prunex/strategies/mask_consensus.h"
#include "prunex/strategies/payload.h"
#include "prunex/strategies/rail_exchange.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// Where a rank's theta starts an outer iteration.
enum class StartFrom {
  kZ,      ///< from the global model: masks settle at any kappa
  kTheta,  ///< from its own theta (the paper): needs kappa >= ln 2, or pruned units return through their duals
};

/// What an exchange is once the masks are final.
enum class AfterFreeze {
  kNesterov,  ///< masked local SGD with DiLoCo's outer step
  kAverage,   ///< masked local SGD
  kAdmm,      ///< go on with duals (the paper)
};

/// What happens to tensors outside every group (batch norm, biases, stem, classifier).
enum class AuxTensors {
  kAverage,  ///< plain mean over all ranks
  kAdmm,     ///< duals and penalties like the rest; they lag
};

/// Which scores decide the final masks.
enum class FreezeMasks { kScores, kLastGlobal };

/// Scores the units of a whole model: double[size] per group, on the CPU; the highest survive. All ranks of `node` call
/// together with the same parameters, without gradients; buffers may be each rank's own.
using UnitScorer = std::function<std::vector<at::Tensor>(const Weights& candidate, comm::Communicator& node)>;

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct HsadmmOptions {
  std::vector<sparsity::Group> groups;  ///< empty: nothing is pruned
  sparsity::KeepSchedule keep;
  MaskRule mask_rule = MaskRule::kJoint;
  UnitScorer score_units;     ///< null: squared norms, which need no rank to hold the whole candidate
  UnitSelector select_units;  ///< null: of every group its share; else what the masks of all nodes together keep
  ExchangeForm exchange = ExchangeForm::kSharded;
  /// How weights travel between nodes. Other than fp32: the change since the last z, rounded with error feedback, and
  /// batch norm's statistics stay at home (re-estimate them before evaluation).
  Payload payload = Payload::kFp32;
  int64_t freeze_after = kNever;   ///< the freeze happens in the exchange after this one
  int64_t freeze_when_stable = 0;  ///< freeze once so many exchanges in a row changed no mask; 0: off
  FreezeMasks freeze_masks = FreezeMasks::kScores;
  bool mask_theta = true;  ///< theta and u are masked at the freeze, theta stays on the mask

  int64_t exchanges_before = 0;                  ///< of another strategy; exchanges count on from there
  int64_t local_steps = 50;                      ///< H: optimizer steps between exchanges; more saves bytes
  int64_t total_steps = 0;                       ///< of the run; the last exchange may come after fewer than H
  std::function<double(int64_t)> learning_rate;  ///< of step 1, 2, …: kappa needs the sum over an iteration
  double momentum = 0.9;                         ///< of the local SGD

  admm::PenaltyOptions penalty;  ///< penalty.kappa == 0 switches ADMM off: no duals, no proximal term
  double lambda = 0;             ///< weight decay inside Eq. 9
  bool as_printed = false;       ///< Eq. 9 as the paper prints it
  bool flat = false;             ///< flat consensus, the paper's "AR": one node that holds all ranks
  StartFrom start_from = StartFrom::kZ;
  AuxTensors aux = AuxTensors::kAverage;

  AfterFreeze after_freeze = AfterFreeze::kNesterov;
  double outer_rate = 0.7;  ///< of the Nesterov step
  double outer_momentum = 0.9;
  int64_t outer_from = 0;     ///< apply it from this exchange on; 0: from the freeze
  admm::Tolerance tolerance;  ///< both 0: never stop early
};

/// Broadcasts rank 0's weights, so that all ranks start from one theta. `groups` must outlive the strategy; ranks have
/// the same options. Throws std::invalid_argument for options that make no sense together.
std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options);

}  // namespace prunex::strategies
