// Element-wise reductions on raw memory.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace prunex::comm {

enum class Reduce { kSum, kMax };

/// float, double, int64 and uint8.
bool can_reduce(c10::ScalarType type);

/// out = a op b, entry by entry; out may be a.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, int64_t count);
ReduceFunction reduce_function(c10::ScalarType type, Reduce reduce);

}  // namespace prunex::comm
