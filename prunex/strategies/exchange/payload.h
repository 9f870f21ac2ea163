// How numbers travel between nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prunex/comm/communicator.h"

namespace prunex::strategies {

enum class Payload {
  kFp32,
  kBf16,
  kFp16,
  kInt8,  ///< blocks of 128 with one scale, the largest magnitude
  kInt4,  ///< the same
  kInt2,  ///< blocks of 128: four levels, spaced for a normal distribution of the block's root mean square
  kInt1,  ///< blocks of 128: signs, with the block's mean magnitude
};

/// "fp32", "bf16", …
std::string name_of(Payload payload);
/// All of them by name.
const std::vector<std::pair<std::string, Payload>>& payloads();

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
  /// One-dimensional, contiguous, on one device, where the work is done.
  void encode(const at::Tensor& values, Extent extent, const at::Tensor& bytes) const;
  void decode(const at::Tensor& bytes, Extent extent, const at::Tensor& values) const;
  void encode(const float* values, Extent extent, uint8_t* bytes) const;
  void decode(const uint8_t* bytes, Extent extent, float* values) const;

 private:
  void check(const at::Tensor& values, Extent extent, const at::Tensor& message) const;

  Payload payload_;
};

/// What earlier messages left out, entry by entry of the buffer: of mine, and of the means that I sent to all.
struct Feedback {
  at::Tensor sent, returned;
};

/// buffer <- about its mean over the group, bit-identical on all ranks. Every rank owns a share of the entries: it
/// receives the others' encoded values of it, adds them up in fp32 in the order of ranks (its own as they are), and
/// sends the encoded mean to all. Both legs together send 2(n-1)/n of the encoded buffer per rank, as an all-reduce
/// does. `extent` is the whole buffer's; one-dimensional fp32. With feedback (buffers like `buffer`) whatever a message
/// leaves out is added to the next one: over many exchanges nothing is lost.
void compressed_mean(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, Extent extent,
                     Feedback* feedback = nullptr);

/// What one rank sends for it.
int64_t compressed_mean_bytes(const Codec& codec, Extent extent, comm::Place place);

}  // namespace prunex::strategies
