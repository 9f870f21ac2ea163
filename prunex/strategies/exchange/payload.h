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

enum class ExchangeForm {
  kSharded,  ///< every local rank exchanges its shard with its peers on the other nodes
  kLeader,   ///< the paper's leader-follower form: one shard, that of local rank 0
  kFlat,     ///< one ring through all ranks that knows no nodes: sum_over_ranks alone
};

struct ExchangeOptions {
  ExchangeForm form = ExchangeForm::kSharded;
  /// How weights travel between nodes. Other than fp32: the change since the last z, rounded with error feedback, and
  /// batch norm's statistics stay at home (re-estimate them before evaluation).
  Payload payload = Payload::kFp32;
};

/// Of a stretch of a buffer: first entries of tensors with two and more dimensions, then of vectors (batch norm,
/// biases), which are few and of other sizes than weights: integer payloads carry them in fp16.
struct EntryCounts {
  int64_t weights = 0, vectors = 0;
  int64_t size() const { return weights + vectors; }
  EntryCounts part(comm::Range range) const;
};

/// Writes numbers as bytes and reads them back. Whoever decodes the same bytes has bit-identical numbers. Scales are
/// bf16; a value outside the levels becomes the nearest one.
class Codec {
 public:
  static constexpr int64_t kBlock = 128;

  explicit Codec(Payload payload) : payload_(payload) {}
  Payload payload() const { return payload_; }

  int64_t bytes(EntryCounts counts) const;
  /// One-dimensional, contiguous, on one device, where the work is done.
  void encode(const at::Tensor& values, EntryCounts counts, const at::Tensor& bytes) const;
  void decode(const at::Tensor& bytes, EntryCounts counts, const at::Tensor& values) const;
  void encode(const float* values, EntryCounts counts, uint8_t* bytes) const;
  void decode(const uint8_t* bytes, EntryCounts counts, float* values) const;

 private:
  void check(const at::Tensor& values, EntryCounts counts, const at::Tensor& message) const;

  Payload payload_;
};

/// What earlier messages left out, entry by entry of the buffer: of mine, and of the means that I sent to all.
struct Feedback {
  at::Tensor sent, returned;
};

/// buffer <- about its mean over the group, bit-identical on all ranks. Every rank owns a share of the entries: it
/// receives the others' encoded values of it, adds them up in fp32 in the order of ranks (its own as they are), and
/// sends the encoded mean to all. Both legs together send 2(n-1)/n of the encoded buffer per rank, as an all-reduce
/// does. `counts` is the whole buffer's; one-dimensional fp32. With feedback (buffers like `buffer`) whatever a message
/// leaves out is added to the next one: over many exchanges nothing is lost.
void compressed_mean(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, EntryCounts counts,
                     Feedback* feedback = nullptr);

}  // namespace prunex::strategies
