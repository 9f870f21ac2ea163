// What a rank remembers between two exchanges, and where a checkpoint keeps it.
#pragma once

#include "prunex/sparsity/cut.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"
#include "prunex/train/checkpoint.h"

namespace prunex::train {

/// The strategy's state by role, and the replica's parameters and momentum. Buffers are not in it: between exchanges
/// they are z's.
void store_state(Checkpoint& checkpoint, const strategies::Strategy& strategy, const Replica& replica);

/// Back into a strategy and a replica of the same shapes. `cut`: what had been cut by then; null for nothing. Throws
/// std::invalid_argument, without the file, for tensors that are missing or of other shapes.
void load_state(const Checkpoint& checkpoint, const sparsity::Cut* cut, strategies::Strategy& strategy,
                Replica& replica);

}  // namespace prunex::train
