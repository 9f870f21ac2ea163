// The release this source belongs to.
#pragma once

namespace prunex {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace prunex
