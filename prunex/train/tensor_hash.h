// 64 bits of what tensors hold.
#pragma once

#include <cstdint>

#include "prunex/tensors.h"

namespace prunex::train {

/// Equal for equal contents in the same order, whatever their layout in memory.
uint64_t hash_of(const TensorDict& first, const TensorDict& second);

}  // namespace prunex::train
