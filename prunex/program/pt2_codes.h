// The integers by which a .pt2 file names dtypes, layouts and memory formats.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

namespace prunex::program {

inline constexpr int kStridedLayout = 7;

/// Throws std::invalid_argument for codes and types that programs do not support (complex, quantized, 8-bit floats).
at::ScalarType dtype_of_code(int64_t code);
int code_of_dtype(at::ScalarType dtype);

at::MemoryFormat memory_format_of_code(int64_t code);
int code_of_memory_format(at::MemoryFormat format);

}  // namespace prunex::program
