// Rounding by operations on tensors: the bytes and numbers of the loops, on the CPU and on the device.
#include "prunex/strategies/exchange/payload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "prunex/strategies/exchange/rounding.h"
#include "tests/device/pretend_device.h"

namespace prunex::strategies {
namespace {

constexpr Payload kPayloads[] = {Payload::kFp32, Payload::kBf16, Payload::kFp16, Payload::kInt8,
                                 Payload::kInt4, Payload::kInt2, Payload::kInt1};
/// Whole blocks, a rest that does not fill a byte, vectors; and each of them alone.
constexpr EntryCounts kCounts[] = {{900, 100}, {256, 0}, {256, 3}, {1, 0}, {5, 0}, {131, 1}, {0, 7}};

/// Of all sizes, with zeros, a block of zeros, and values on the border between two levels.
at::Tensor awkward_values(int64_t count) {
  auto generator = at::detail::createCPUGenerator(11);
  at::Tensor values = at::randn({count}, generator) * at::logspace(-6, 4, count);
  if (count > 400) values.narrow(0, 128, 128).zero_();
  if (count > 700) values.narrow(0, 512, 128).copy_(at::arange(-64, 64).to(at::kFloat) * 0.5);
  if (count > 3) values[2] = 0;
  return values;
}

struct Rounded {
  at::Tensor bytes, values;
};

Rounded by_loops(Payload payload, const at::Tensor& values, EntryCounts counts) {
  const Codec codec(payload);
  Rounded result{at::empty({codec.bytes(counts)}, at::kByte), at::empty_like(values)};
  codec.encode(values.const_data_ptr<float>(), counts, result.bytes.mutable_data_ptr<uint8_t>());
  codec.decode(result.bytes.const_data_ptr<uint8_t>(), counts, result.values.mutable_data_ptr<float>());
  return result;
}

Rounded by_operations(Payload payload, const at::Tensor& values, EntryCounts counts) {
  Rounded result{at::empty({Codec(payload).bytes(counts)}, values.options().dtype(at::kByte)), at::empty_like(values)};
  encode_by_operations(payload, values, counts, result.bytes);
  decode_by_operations(payload, result.bytes, counts, result.values);
  return result;
}

Rounded by_codec(Payload payload, const at::Tensor& values, EntryCounts counts) {
  const Codec codec(payload);
  Rounded result{at::empty({codec.bytes(counts)}, values.options().dtype(at::kByte)), at::empty_like(values)};
  codec.encode(values, counts, result.bytes);
  codec.decode(result.bytes, counts, result.values);
  return result;
}

void expect_equal(const Rounded& got, const Rounded& wanted) {
  EXPECT_TRUE(got.bytes.cpu().equal(wanted.bytes));
  EXPECT_TRUE(got.values.cpu().equal(wanted.values));
}

TEST(RoundingByOperations, HasTheBytesOfTheLoops) {
  for (const auto payload : kPayloads) {
    for (const auto counts : kCounts) {
      SCOPED_TRACE(name_of(payload) + " of " + std::to_string(counts.weights) + " + " + std::to_string(counts.vectors));
      const at::Tensor values = awkward_values(counts.size());
      const Rounded wanted = by_loops(payload, values, counts);
      expect_equal(by_operations(payload, values, counts), wanted);
      const tests::HostTraffic before = tests::host_traffic();
      const Rounded there = by_codec(payload, values.to(tests::pretend_device()), counts);
      EXPECT_EQ((tests::host_traffic() - before).reads, 0);
      expect_equal(there, wanted);
    }
  }
}

TEST(RoundingByOperations, HasTheBytesOfTheLoopsWhereABlockIsNotFinite) {
  for (const auto payload : kPayloads) {
    for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e30f}) {
      SCOPED_TRACE(name_of(payload) + " of " + std::to_string(odd));
      const EntryCounts counts{400, 0};
      at::Tensor values = awkward_values(counts.size());
      values[130] = odd;
      const Rounded got = by_operations(payload, values, counts), wanted = by_loops(payload, values, counts);
      EXPECT_TRUE(std::isnan(odd) || got.bytes.equal(wanted.bytes));  // a NaN has many patterns
      EXPECT_TRUE(got.values.allclose(wanted.values, 0, 0, /*equal_nan=*/true));
    }
  }
}

/// Bytes of a message begin anywhere.
TEST(RoundingByOperations, ReadsWhatBeginsAtAnOddByte) {
  const EntryCounts counts{131, 9};
  const at::Tensor values = awkward_values(counts.size());
  const Rounded wanted = by_loops(Payload::kInt4, values, counts);
  const at::Tensor message = at::cat({at::zeros({1}, at::kByte), wanted.bytes}).to(tests::pretend_device());
  const at::Tensor read = at::empty_like(values, values.options().device(tests::pretend_device()));
  Codec(Payload::kInt4).decode(message.narrow(0, 1, wanted.bytes.numel()), counts, read);
  EXPECT_TRUE(read.cpu().equal(wanted.values));
}

}  // namespace
}  // namespace prunex::strategies
