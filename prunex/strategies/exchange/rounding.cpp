#include "prunex/strategies/exchange/rounding.h"

#include <ATen/ATen.h>

#include <vector>

namespace prunex::strategies {
namespace {

constexpr int64_t kScaleBytes = 2;  // bf16

at::Tensor as_bytes(const at::Tensor& numbers) {
  return numbers.contiguous().view(at::kByte);
}

/// Bytes at any place of a message, whose address need not suit the type.
at::Tensor as_numbers(const at::Tensor& bytes, at::ScalarType type) {
  return bytes.clone(at::MemoryFormat::Contiguous).view(type);
}

at::ScalarType float_type(Payload payload) {
  if (payload == Payload::kFp32) return at::kFloat;
  return payload == Payload::kBf16 ? at::kBFloat16 : at::kHalf;
}

/// By a number on the device: dividing by one of the host's, a GPU multiplies by its reciprocal instead.
at::Tensor divided(const at::Tensor& numbers, double by) {
  return numbers / at::full({1}, by, numbers.options());
}

/// [blocks]: entry after entry, as a loop over a block adds up.
at::Tensor means(const at::Tensor& blocks) {
  const at::Tensor entries = blocks.t().contiguous();
  at::Tensor sums = entries[0].clone();
  for (int64_t entry = 1; entry < entries.size(0); ++entry) sums.add_(entries[entry]);
  return divided(sums, static_cast<double>(blocks.size(1)));
}

/// bf16[blocks]
at::Tensor scales_of(int bits, const at::Tensor& blocks) {
  if (!straddle_zero(bits)) return blocks.abs().amax(1).to(at::kBFloat16);
  return (bits == 1 ? means(blocks.abs()) : means(blocks.square()).sqrt_()).to(at::kBFloat16);
}

/// [blocks, 1]
at::Tensor spacings(int bits, const at::Tensor& scales) {
  const at::Tensor wide = scales.to(at::kFloat).view({-1, 1});
  const double per_scale = levels_of(bits).per_scale;
  return straddle_zero(bits) ? wide * per_scale : divided(wide, per_scale);
}

/// [blocks, entries] of float -> [blocks, scale and codes] of bytes.
at::Tensor encode_blocks(int bits, const at::Tensor& blocks) {
  const Levels levels = levels_of(bits);
  const at::Tensor scales = scales_of(bits, blocks), spacing = spacings(bits, scales);
  at::Tensor codes = (blocks / spacing).add_(levels.offset).round_().clamp_(0, levels.last);
  codes.masked_fill_(spacing.gt(0).logical_and_(spacing.isfinite()).logical_not_(), 0);
  const int64_t per_byte = 8 / bits, length = code_bytes(bits, blocks.size(1));
  codes = at::constant_pad_nd(codes.to(at::kByte), {0, length * per_byte - blocks.size(1)});
  codes = codes.view({blocks.size(0), length, per_byte});
  at::Tensor packed = codes.select(2, 0).clone(at::MemoryFormat::Contiguous);
  for (int64_t i = 1; i < per_byte; ++i) packed.bitwise_or_(codes.select(2, i).bitwise_left_shift(i * bits));
  return at::cat({as_bytes(scales).view({-1, kScaleBytes}), packed}, 1);
}

/// And back, for `entries` of them.
at::Tensor decode_blocks(int bits, const at::Tensor& bytes, int64_t entries) {
  const at::Tensor scales = as_numbers(bytes.narrow(1, 0, kScaleBytes), at::kBFloat16).flatten();
  const at::Tensor packed = bytes.narrow(1, kScaleBytes, bytes.size(1) - kScaleBytes);
  std::vector<at::Tensor> codes;
  for (int64_t i = 0; i < 8 / bits; ++i) {
    codes.push_back(packed.bitwise_right_shift(i * bits).bitwise_and_((1 << bits) - 1));
  }
  const at::Tensor all = at::stack(codes, 2).flatten(1).narrow(1, 0, entries).to(at::kFloat);
  return all.sub_(levels_of(bits).offset).mul_(spacings(bits, scales));
}

/// Where the whole blocks, the one that is shorter and the vectors lie.
struct Sections {
  int64_t blocks, rest;  // whole blocks; entries of the last one
  int64_t block_bytes, rest_bytes;

  Sections(int bits, int64_t weights)
      : blocks(weights / Codec::kBlock),
        rest(weights % Codec::kBlock),
        block_bytes(kScaleBytes + code_bytes(bits, Codec::kBlock)),
        rest_bytes(rest == 0 ? 0 : kScaleBytes + code_bytes(bits, rest)) {}
};

}  // namespace

void encode_by_operations(Payload payload, const at::Tensor& values, EntryCounts counts, const at::Tensor& bytes) {
  const int bits = bits_of(payload);
  if (bits == 0) return void(bytes.copy_(as_bytes(values.to(float_type(payload)))));
  const Sections place(bits, counts.weights);
  const int64_t whole = place.blocks * Codec::kBlock, whole_bytes = place.blocks * place.block_bytes;
  if (place.blocks > 0) {
    const at::Tensor blocks = values.narrow(0, 0, whole).view({place.blocks, Codec::kBlock});
    bytes.narrow(0, 0, whole_bytes).copy_(encode_blocks(bits, blocks).flatten());
  }
  if (place.rest > 0) {
    const at::Tensor block = values.narrow(0, whole, place.rest).view({1, place.rest});
    bytes.narrow(0, whole_bytes, place.rest_bytes).copy_(encode_blocks(bits, block).flatten());
  }
  if (counts.vectors == 0) return;
  const at::Tensor vectors = values.narrow(0, counts.weights, counts.vectors);
  bytes.narrow(0, whole_bytes + place.rest_bytes, 2 * counts.vectors).copy_(as_bytes(vectors.to(at::kHalf)));
}

void decode_by_operations(Payload payload, const at::Tensor& bytes, EntryCounts counts, const at::Tensor& values) {
  const int bits = bits_of(payload);
  if (bits == 0) return void(values.copy_(as_numbers(bytes, float_type(payload))));
  const Sections place(bits, counts.weights);
  const int64_t whole = place.blocks * Codec::kBlock, whole_bytes = place.blocks * place.block_bytes;
  if (place.blocks > 0) {
    const at::Tensor blocks = bytes.narrow(0, 0, whole_bytes).view({place.blocks, place.block_bytes});
    values.narrow(0, 0, whole).copy_(decode_blocks(bits, blocks, Codec::kBlock).flatten());
  }
  if (place.rest > 0) {
    const at::Tensor block = bytes.narrow(0, whole_bytes, place.rest_bytes).view({1, place.rest_bytes});
    values.narrow(0, whole, place.rest).copy_(decode_blocks(bits, block, place.rest).flatten());
  }
  if (counts.vectors == 0) return;
  const at::Tensor vectors = bytes.narrow(0, whole_bytes + place.rest_bytes, 2 * counts.vectors);
  values.narrow(0, counts.weights, counts.vectors).copy_(as_numbers(vectors, at::kHalf));
}

}  // namespace prunex::strategies
