// H-SADMM: hierarchical structured ADMM (arXiv 2512.14628, corrected; docs/algorithm.md). Local SGD, DiLoCo and the
// flat form are settings of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prunex/strategies/hsadmm/duals.h"
#include "prunex/strategies/hsadmm/mask_consensus.h"

namespace prunex::strategies {

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
  int64_t from = 0;  ///< apply it from this exchange on; 0: from the freeze
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

/// Throws std::invalid_argument for options that make no sense together, or beside these parameters.
void check(const HsadmmOptions& options, const TensorDict& params);

/// Parameters under a proximal term: the members of groups, or all.
std::vector<std::string> names_in_consensus(const HsadmmOptions& options, const TensorDict& params);

/// Broadcasts rank 0's weights, so that all ranks start from one theta; ranks have the same options. Throws
/// std::invalid_argument for options that make no sense together.
std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options);

}  // namespace prunex::strategies
