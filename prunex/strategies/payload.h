// How numbers travel between nodes.
#pragma once

#include <cstdint>
#include <string>

namespace prunex::strategies {

enum class Payload {
  kFp32,
  kBf16,
  kFp16,
  kInt8,  ///< blocks of 128 with one scale, the largest magnitude
  kInt4,  ///< the same
  kInt2,  ///< blocks of 128: four levels, spaced for a normal distribution of the block's root mean square
};

/// "fp32", "bf16", …
std::string name_of(Payload payload);

/// A stretch of a buffer: first entries of tensors with two and more dimensions, then of vectors (batch norm, biases),
/// which are few and of other sizes than weights: integer payloads carry them in fp16.
struct Extent {
  int64_t weights = 0, vectors = 0;
  int64_t size() const { return weights + vectors; }
};

/// Writes numbers as bytes and reads them back. Whoever decodes the same bytes has bit-identical numbers. Scales are
/// bf16; a value outside the levels becomes the nearest one.
class Codec {
 public:
  static constexpr int64_t kBlock = 128;

  explicit Codec(Payload payload) : payload_(payload) {}
  Payload payload() const { return payload_; }

  int64_t bytes(Extent extent) const;
  void encode(const float* values, Extent extent, uint8_t* bytes) const;
  void decode(const uint8_t* bytes, Extent extent, float* values) const;

 private:
  int bits() const;

  Payload payload_;
};

}  // namespace prunex::strategies
