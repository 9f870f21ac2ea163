// What a program tells the person who waits for it.
#pragma once

#include <cstdio>
#include <string_view>

namespace prunex {

/// Writes to standard error. That nobody reads it, that it is closed or on a full disk, ends nothing: a message is
/// lost.
inline void say(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace prunex
