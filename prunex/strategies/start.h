// What every strategy asks of a replica, and how replicas become equal.
#pragma once

#include "prunex/comm/communicator.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// Throws std::invalid_argument for parameters that are neither fp32 nor fp64 or partly each, for fp64 if messages are
/// rounded, or for one tensor under two names: it would be trained twice.
void expect_usable(const TensorDict& params, Payload payload = Payload::kFp32);

/// Throws std::invalid_argument for a parameter whose rows, of dimension 0, do not lie behind each other in memory:
/// masks and nodes of several ranks divide tensors into rows.
void expect_rows(const TensorDict& params);

/// expect_usable(); then every rank has rank 0's values, in its own tensors. Collective; std::invalid_argument on all
/// ranks if names, sizes, types or memory layouts differ among them.
void start_equal(Weights& weights, comm::Communicator& world);

}  // namespace prunex::strategies
