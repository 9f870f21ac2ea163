// Integer payloads: their levels, and the work of a Codec as operations on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "prunex/strategies/exchange/payload.h"

namespace prunex::strategies {

/// The spacing of four levels with the least squared error for a standard normal distribution (J. Max, Quantizing for
/// minimum distortion, 1960, table II).
inline constexpr float kNormalSpacing = 0.9957f;
/// Two levels with the least squared error are minus and plus the mean magnitude (Karimireddy et al., 1901.09847).
inline constexpr float kSignSpacing = 2;

/// Of integer payloads; 0 for floating-point numbers.
int bits_of(Payload payload);

/// Levels are (code - offset) x spacing, for codes from 0 to `last`. Two and four levels straddle zero, and their
/// spacing is scale x per_scale; more have one at zero and as many on either side, and theirs is scale / per_scale.
struct Levels {
  float per_scale = 0, offset = 0, last = 0;
};

constexpr bool straddle_zero(int bits) {
  return bits <= 2;
}

constexpr Levels levels_of(int bits) {
  if (bits == 1) return {kSignSpacing, 0.5f, 1};
  if (bits == 2) return {kNormalSpacing, 1.5f, 3};
  const auto highest = static_cast<float>((1 << (bits - 1)) - 1);
  return {highest, highest, 2 * highest};
}

constexpr int64_t code_bytes(int bits, int64_t count) {
  return (count * bits + 7) / 8;
}

/// What Codec does on the CPU in loops, for tensors on any device: the same bytes, the same numbers.
void encode_by_operations(Payload payload, const at::Tensor& values, EntryCounts counts, const at::Tensor& bytes);
void decode_by_operations(Payload payload, const at::Tensor& bytes, EntryCounts counts, const at::Tensor& values);

}  // namespace prunex::strategies
