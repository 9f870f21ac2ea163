// 64 bits that tell contents apart, the same on every machine: for comparing, not against forgers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace prunex {

/// FNV-1a.
class Digest {
 public:
  /// Bytes as they are.
  void add(const void* bytes, size_t count) {
    const auto* all = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < count; ++i) mix(all[i]);
  }

  /// Its eight bytes, the lowest first.
  void add_word(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) mix(static_cast<uint8_t>(word >> (8 * byte)));
  }

  /// Its length as a word, then its bytes.
  void add_text(std::string_view text) {
    add_word(text.size());
    add(text.data(), text.size());
  }

  uint64_t value() const { return state_; }

 private:
  void mix(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }

  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace prunex
