// A checksum that tells a damaged file from a good one.
#pragma once

#include <string>

#include "prunex/tensors.h"

namespace prunex::io {

/// 16 hexadecimal digits over names, types, shapes and values (row-major) of the tensors and over `text`: 64-bit
/// FNV-1a, eight bytes at a time. Against accidents, not against forgery.
std::string checksum(const TensorDict& tensors, const std::string& text);

}  // namespace prunex::io
