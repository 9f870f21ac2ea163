#include "prunex/strategies/exchange/payload.h"

#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "prunex/strategies/exchange/rounding.h"

namespace prunex::strategies {
namespace {

template <typename Number>
void encode_as(const float* values, int64_t count, uint8_t* bytes) {
  for (int64_t i = 0; i < count; ++i) {
    const Number number(values[i]);
    std::memcpy(bytes + i * sizeof(Number), &number, sizeof(Number));
  }
}

template <typename Number>
void decode_as(const uint8_t* bytes, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, bytes + i * sizeof(Number), sizeof(Number));
    values[i] = static_cast<float>(number);
  }
}

float rounded_to_bf16(float value) {
  return static_cast<float>(c10::BFloat16(value));
}

/// The levels of one block.
struct BlockLevels {
  float spacing = 0;
  Levels levels;

  int code(float value) const {
    if (!(spacing > 0) || std::isinf(spacing)) return 0;
    return static_cast<int>(std::clamp(std::nearbyint(value / spacing + levels.offset), 0.0f, levels.last));
  }
  float value(int code) const { return (static_cast<float>(code) - levels.offset) * spacing; }
};

BlockLevels block_levels(int bits, float scale) {
  const Levels levels = levels_of(bits);
  return {straddle_zero(bits) ? scale * levels.per_scale : scale / levels.per_scale, levels};
}

float scale_of(int bits, const float* values, int64_t count) {
  float scale = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[i]);
    if (straddle_zero(bits)) {
      scale += bits == 1 ? magnitude : magnitude * magnitude;
    } else {
      scale = magnitude > scale || std::isnan(magnitude) ? magnitude : scale;  // NaN stays
    }
  }
  if (straddle_zero(bits)) scale /= static_cast<float>(count);
  return rounded_to_bf16(bits == 2 ? std::sqrt(scale) : scale);
}

uint8_t* encode_block(int bits, const float* values, int64_t count, uint8_t* bytes) {
  const float scale = scale_of(bits, values, count);
  const BlockLevels levels = block_levels(bits, scale);
  encode_as<c10::BFloat16>(&scale, 1, bytes);
  bytes += sizeof(c10::BFloat16);
  std::memset(bytes, 0, static_cast<size_t>(code_bytes(bits, count)));
  for (int64_t i = 0; i < count; ++i) {
    bytes[i * bits / 8] |= static_cast<uint8_t>(levels.code(values[i]) << (i * bits % 8));
  }
  return bytes + code_bytes(bits, count);
}

const uint8_t* decode_block(int bits, const uint8_t* bytes, int64_t count, float* values) {
  float scale = 0;
  decode_as<c10::BFloat16>(bytes, 1, &scale);
  const BlockLevels levels = block_levels(bits, scale);
  bytes += sizeof(c10::BFloat16);
  const int mask = (1 << bits) - 1;
  for (int64_t i = 0; i < count; ++i) values[i] = levels.value((bytes[i * bits / 8] >> (i * bits % 8)) & mask);
  return bytes + code_bytes(bits, count);
}

}  // namespace

const std::vector<std::pair<std::string, Payload>>& payloads() {
  static const std::vector<std::pair<std::string, Payload>> all{
      {"fp32", Payload::kFp32}, {"bf16", Payload::kBf16}, {"fp16", Payload::kFp16}, {"int8", Payload::kInt8},
      {"int4", Payload::kInt4}, {"int2", Payload::kInt2}, {"int1", Payload::kInt1}};
  return all;
}

std::string name_of(Payload payload) {
  return payloads()[static_cast<size_t>(payload)].first;
}

int bits_of(Payload payload) {
  if (payload == Payload::kInt8) return 8;
  if (payload == Payload::kInt4) return 4;
  if (payload == Payload::kInt2) return 2;
  return payload == Payload::kInt1 ? 1 : 0;
}

void Codec::check(const at::Tensor& values, EntryCounts counts, const at::Tensor& message) const {
  TORCH_CHECK(values.numel() >= counts.size() && message.numel() >= bytes(counts), "[strategies] room for ",
              values.numel(), " numbers and ", message.numel(), " bytes, wanted ", counts.size(), " and ",
              bytes(counts));
}

void Codec::encode(const at::Tensor& values, EntryCounts counts, const at::Tensor& bytes) const {
  check(values, counts, bytes);
  if (!values.is_cpu()) return encode_by_operations(payload_, values, counts, bytes);
  encode(values.const_data_ptr<float>(), counts, bytes.mutable_data_ptr<uint8_t>());
}

void Codec::decode(const at::Tensor& bytes, EntryCounts counts, const at::Tensor& values) const {
  check(values, counts, bytes);
  if (!values.is_cpu()) return decode_by_operations(payload_, bytes, counts, values);
  decode(bytes.const_data_ptr<uint8_t>(), counts, values.mutable_data_ptr<float>());
}

EntryCounts EntryCounts::part(comm::Range range) const {
  const int64_t first = std::clamp<int64_t>(weights - range.begin, 0, range.size());
  return {first, range.size() - first};
}

int64_t Codec::bytes(EntryCounts counts) const {
  if (bits_of(payload_) == 0) return counts.size() * (payload_ == Payload::kFp32 ? 4 : 2);
  const int64_t whole = counts.weights / kBlock, rest = counts.weights % kBlock;
  const int64_t scales = (whole + (rest > 0 ? 1 : 0)) * static_cast<int64_t>(sizeof(c10::BFloat16));
  return scales + whole * code_bytes(bits_of(payload_), kBlock) + code_bytes(bits_of(payload_), rest) +
         2 * counts.vectors;
}

void Codec::encode(const float* values, EntryCounts counts, uint8_t* bytes) const {
  if (payload_ == Payload::kFp32) return encode_as<float>(values, counts.size(), bytes);
  if (payload_ == Payload::kBf16) return encode_as<c10::BFloat16>(values, counts.size(), bytes);
  if (payload_ == Payload::kFp16) return encode_as<c10::Half>(values, counts.size(), bytes);
  for (int64_t begin = 0; begin < counts.weights; begin += kBlock) {
    bytes = encode_block(bits_of(payload_), values + begin, std::min(kBlock, counts.weights - begin), bytes);
  }
  encode_as<c10::Half>(values + counts.weights, counts.vectors, bytes);
}

void Codec::decode(const uint8_t* bytes, EntryCounts counts, float* values) const {
  if (payload_ == Payload::kFp32) return decode_as<float>(bytes, counts.size(), values);
  if (payload_ == Payload::kBf16) return decode_as<c10::BFloat16>(bytes, counts.size(), values);
  if (payload_ == Payload::kFp16) return decode_as<c10::Half>(bytes, counts.size(), values);
  for (int64_t begin = 0; begin < counts.weights; begin += kBlock) {
    bytes = decode_block(bits_of(payload_), bytes, std::min(kBlock, counts.weights - begin), values + begin);
  }
  decode_as<c10::Half>(bytes, counts.vectors, values + counts.weights);
}

namespace {

/// Whose entries are whose, and where their bytes lie in a message of all shares.
struct Shares {
  std::vector<comm::Range> entries, bytes;
  std::vector<EntryCounts> counts;

  Shares(const Codec& codec, EntryCounts whole, int ranks) : entries(comm::parts({0, whole.size()}, ranks)) {
    int64_t end = 0;
    for (const auto& range : entries) {
      counts.push_back(whole.part(range));
      bytes.push_back({end, end + codec.bytes(counts.back())});
      end = bytes.back().end;
    }
  }
};

class MeanExchange {
 public:
  MeanExchange(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, EntryCounts counts,
               Feedback* feedback)
      : group_(group),
        codec_(codec),
        buffer_(buffer),
        feedback_(feedback),
        shares_(codec, counts, group.size()),
        message_(at::empty({shares_.bytes.back().end}, buffer.options().dtype(at::kByte))) {}

  void run() {
    take_feedback();
    for (int owner = 0; owner < group_.size(); ++owner) {
      if (owner != group_.rank()) encode(owner, feedback_ ? feedback_->sent : at::Tensor());
    }
    add_up(receive());
    encode(group_.rank(), feedback_ ? feedback_->returned : at::Tensor());
    group_.all_gather_parts(message_, shares_.bytes);
    for (int owner = 0; owner < group_.size(); ++owner) decode(owner, entries(buffer_, owner));
  }

 private:
  at::Tensor entries(const at::Tensor& buffer, int owner) const {
    return comm::slice(buffer, shares_.entries[static_cast<size_t>(owner)]);
  }
  at::Tensor bytes(int owner) const { return comm::slice(message_, shares_.bytes[static_cast<size_t>(owner)]); }

  /// Means that were left out of a share that is another's now go back to where they came from: everyone's values.
  void take_feedback() {
    if (feedback_ == nullptr) return;
    buffer_.add_(feedback_->sent);
    feedback_->sent.zero_();
    for (int owner = 0; owner < group_.size(); ++owner) {
      if (owner == group_.rank()) continue;
      at::Tensor returned = entries(feedback_->returned, owner);
      entries(buffer_, owner).add_(returned, group_.size());
      returned.zero_();
    }
  }

  /// Writes a share's bytes; `left_out`, unless undefined, <- what they do not say.
  void encode(int owner, const at::Tensor& left_out) {
    const auto counts = shares_.counts[static_cast<size_t>(owner)];
    codec_.encode(entries(buffer_, owner), counts, bytes(owner));
    if (!left_out.defined()) return;
    at::Tensor rest = entries(left_out, owner);
    decode(owner, rest);
    at::sub_out(rest, entries(buffer_, owner), rest);
  }
  void decode(int owner, const at::Tensor& values) const {
    codec_.decode(bytes(owner), shares_.counts[static_cast<size_t>(owner)], values);
  }

  at::Tensor receive() {
    const auto length = shares_.bytes[static_cast<size_t>(group_.rank())].size();
    at::Tensor received = at::empty({group_.size(), length}, message_.options());
    group_.all_to_all(received, message_, shares_.bytes);
    return received;
  }

  /// My share <- mean over ranks, with what the last mean left out.
  void add_up(const at::Tensor& received) {
    const auto me = static_cast<size_t>(group_.rank());
    at::Tensor share = entries(buffer_, group_.rank());
    at::Tensor sum = at::zeros_like(share), theirs = at::empty_like(share);
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) {
        sum.add_(share);
        continue;
      }
      codec_.decode(received[rank], shares_.counts[me], theirs);
      sum.add_(theirs);
    }
    at::div_out(share, sum, at::scalar_tensor(group_.size(), sum.options()));
    if (feedback_ != nullptr) share.add_(entries(feedback_->returned, group_.rank()));
  }

  comm::Communicator& group_;
  const Codec& codec_;
  at::Tensor& buffer_;
  Feedback* feedback_;
  const Shares shares_;
  at::Tensor message_;
};

}  // namespace

void compressed_mean(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, EntryCounts counts,
                     Feedback* feedback) {
  TORCH_CHECK(buffer.scalar_type() == at::kFloat && buffer.dim() == 1 && buffer.is_contiguous(),
              "[strategies] compressed mean of ", buffer.scalar_type(), " ", buffer.sizes());
  TORCH_CHECK(buffer.numel() == counts.size(), "[strategies] compressed mean of ", buffer.numel(), " entries, not ",
              counts.size());
  if (buffer.numel() == 0) return;
  if (group.size() == 1) {  // the others are gone: what it owes them is its own
    if (feedback == nullptr) return;
    for (at::Tensor left : {feedback->sent, feedback->returned}) {
      buffer.add_(left);
      left.zero_();
    }
    return;
  }
  MeanExchange(group, codec, buffer, counts, feedback).run();
}

}  // namespace prunex::strategies
