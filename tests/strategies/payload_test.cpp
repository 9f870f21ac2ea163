// Rounded numbers: what a message holds, how long it is, and that error feedback loses nothing.
#include "prunex/strategies/exchange/payload.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "prunex/comm/connect.h"

namespace prunex::strategies {
namespace {

constexpr std::array kPayloads = {Payload::kFp32, Payload::kBf16, Payload::kFp16, Payload::kInt8,
                                  Payload::kInt4, Payload::kInt2, Payload::kInt1};

at::Tensor noise(int64_t count, uint64_t seed) {
  return at::randn({count}, at::make_generator<at::CPUGeneratorImpl>(seed));
}

at::Tensor there_and_back(Payload payload, const at::Tensor& values, EntryCounts counts) {
  const Codec codec(payload);
  std::vector<uint8_t> bytes(static_cast<size_t>(codec.bytes(counts)) + 1, 0xab);
  codec.encode(values.const_data_ptr<float>(), counts, bytes.data());
  EXPECT_EQ(bytes.back(), 0xab) << name_of(payload) << " writes past its bytes";
  at::Tensor read = at::empty_like(values);
  codec.decode(bytes.data(), counts, read.mutable_data_ptr<float>());
  return read;
}

double relative_error(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got - wanted).norm() / wanted.norm()).item<double>();
}

TEST(Codec, BytesAreCodesAndAScalePerBlockAndHalfPrecisionVectors) {
  const EntryCounts counts{300, 10};  // two blocks of 128 and one of 44
  EXPECT_EQ(Codec(Payload::kFp32).bytes(counts), 1240);
  EXPECT_EQ(Codec(Payload::kBf16).bytes(counts), 620);
  EXPECT_EQ(Codec(Payload::kInt8).bytes(counts), 300 + 3 * 2 + 20);
  EXPECT_EQ(Codec(Payload::kInt4).bytes(counts), 150 + 3 * 2 + 20);
  EXPECT_EQ(Codec(Payload::kInt2).bytes(counts), 75 + 3 * 2 + 20);
  EXPECT_EQ(Codec(Payload::kInt1).bytes(counts), 38 + 3 * 2 + 20);  // 44 signs need 6 bytes
  EXPECT_EQ(Codec(Payload::kInt2).bytes({1, 0}), 2 + 1);
  EXPECT_EQ(Codec(Payload::kInt2).bytes({0, 0}), 0);
}

TEST(Codec, ReadsBackTypesThatTorchHasAsTorchRounds) {
  const at::Tensor values = noise(1000, 1);
  EXPECT_TRUE(there_and_back(Payload::kFp32, values, {900, 100}).equal(values));
  EXPECT_TRUE(there_and_back(Payload::kBf16, values, {900, 100}).equal(values.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(there_and_back(Payload::kFp16, values, {900, 100}).equal(values.to(at::kHalf).to(at::kFloat)));
  for (const Payload payload : {Payload::kInt8, Payload::kInt4, Payload::kInt2, Payload::kInt1}) {
    const at::Tensor read = there_and_back(payload, values, {900, 100});
    EXPECT_TRUE(read.slice(0, 900).equal(values.slice(0, 900).to(at::kHalf).to(at::kFloat))) << name_of(payload);
  }
}

// Max's table: of a normal distribution two levels have a squared error of 0.3634, four of 0.1188. The others: a
// spacing of s has s^2/12, with the largest of 128 normal values near 2.6.
TEST(Codec, ErrorsAreThoseOfTheQuantiser) {
  const at::Tensor values = noise(128 * 2000, 2);
  const auto squared = [&](Payload payload) {
    const double error = relative_error(there_and_back(payload, values, {values.numel(), 0}), values);
    return error * error;
  };
  EXPECT_NEAR(squared(Payload::kInt1), 0.3634, 0.005);
  EXPECT_NEAR(squared(Payload::kInt2), 0.1188, 0.005);
  EXPECT_NEAR(squared(Payload::kInt4), std::pow(2.65 / 7, 2) / 12, 2e-3);
  EXPECT_NEAR(squared(Payload::kInt8), std::pow(2.65 / 127, 2) / 12, 1e-5);
}

TEST(Codec, AScaleBelongsToItsBlock) {
  at::Tensor values = noise(256, 3);
  values.slice(0, 128).mul_(1e-4);
  for (const Payload payload : {Payload::kInt8, Payload::kInt4, Payload::kInt2, Payload::kInt1}) {
    const at::Tensor read = there_and_back(payload, values, {256, 0});
    EXPECT_LT(relative_error(read.slice(0, 0, 128), values.slice(0, 0, 128)), payload == Payload::kInt1 ? 0.7 : 0.4)
        << name_of(payload);
  }
  values.slice(0, 0, 128).zero_();
  EXPECT_EQ(there_and_back(Payload::kInt2, values, {256, 0}).slice(0, 0, 128).abs().max().item<double>(), 0);
}

TEST(Codec, ABlockWithoutANumberReadsBackAsNone) {
  for (const Payload payload : {Payload::kInt8, Payload::kInt4, Payload::kInt2, Payload::kInt1}) {
    at::Tensor values = noise(256, 5);
    values[3] = std::nanf("");
    const at::Tensor read = there_and_back(payload, values, {256, 0});
    EXPECT_TRUE(read.slice(0, 0, 128).isnan().all().item<bool>()) << name_of(payload);
    EXPECT_TRUE(read.slice(0, 128).isfinite().all().item<bool>()) << name_of(payload);
  }
}

TEST(CompressedMean, OfFullPrecisionIsTheMean) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, 1, [&](comm::Hierarchy& h) {
      at::Tensor buffer = noise(1001, h.layout.rank);
      at::Tensor mean = at::zeros({1001});
      for (int rank = 0; rank < ranks; ++rank) mean += noise(1001, rank);
      compressed_mean(*h.rail, Codec(Payload::kFp32), buffer, {900, 101});
      EXPECT_LT((buffer - mean / ranks).abs().max().item<double>(), 1e-6) << ranks;
    });
  }
}

TEST(CompressedMean, IsBitIdenticalOnAllRanksAndSendsWhatTheFormulaSays) {
  for (const Payload payload : kPayloads) {
    std::vector<at::Tensor> results(3);
    std::vector<int64_t> sent(3);
    const Codec codec(payload);
    const EntryCounts counts{1000, 37};
    comm::run_ranks(3, 1, [&](comm::Hierarchy& h) {
      at::Tensor buffer = noise(counts.size(), h.layout.rank);
      compressed_mean(*h.rail, codec, buffer, counts);
      results[h.layout.rank] = buffer;
      sent[h.layout.rank] = h.rail->traffic().bytes.sent;
    });
    EXPECT_TRUE(results[1].equal(results[0]) && results[2].equal(results[0])) << name_of(payload);
    // shares of 345, 346 and 346 entries, the last with all vectors: to others what is theirs, and its own to both
    const int64_t a = codec.bytes({345, 0}), b = codec.bytes({346, 0}), c = codec.bytes({309, 37});
    EXPECT_THAT(sent, testing::ElementsAre(2 * a + b + c, a + 2 * b + c, a + b + 2 * c)) << name_of(payload);
    EXPECT_NEAR(static_cast<double>(sent[0] + sent[1] + sent[2]), 4.0 * static_cast<double>(codec.bytes(counts)), 80)
        << name_of(payload);  // 2 (n-1) of the whole, but for scales of blocks cut in two
  }
}

// What the means lack is what the feedback holds: sum of means + what is owed = sum of true means.
TEST(CompressedMean, FeedbackLosesNothing) {
  for (const Payload payload : {Payload::kBf16, Payload::kInt8, Payload::kInt4, Payload::kInt2, Payload::kInt1}) {
    std::vector<at::Tensor> owed(3), got(3);
    at::Tensor wanted = at::zeros({1037}, at::kDouble);
    for (int step = 0; step < 20; ++step) {
      for (int rank = 0; rank < 3; ++rank) wanted += noise(1037, 100 * step + rank).to(at::kDouble) / 3;
    }
    comm::run_ranks(3, 1, [&](comm::Hierarchy& h) {
      const int rank = h.layout.rank;
      Feedback feedback{at::zeros({1037}), at::zeros({1037})};
      got[rank] = at::zeros({1037}, at::kDouble);
      for (int step = 0; step < 20; ++step) {
        at::Tensor buffer = noise(1037, 100 * step + rank);
        compressed_mean(*h.rail, Codec(payload), buffer, {1000, 37}, &feedback);
        got[rank] += buffer;
      }
      owed[rank] = feedback.sent.to(at::kDouble) / 3 + feedback.returned;
    });
    const at::Tensor total = got[0] + owed[0] + owed[1] + owed[2];
    EXPECT_LT((total - wanted).abs().max().item<double>(), 1e-4) << name_of(payload);
    EXPECT_GT((got[0] - wanted).abs().max().item<double>(), 1e-4) << name_of(payload) << ": nothing was rounded";
  }
}

// The owner of an entry may change between two exchanges, because the buffer does.
TEST(CompressedMean, FeedbackForAShareThatIsAnothersNowGoesBackToTheSum) {
  comm::run_ranks(2, 1, [&](comm::Hierarchy& h) {
    Feedback feedback{at::zeros({2}), at::zeros({2})};
    if (h.layout.rank == 0) feedback.returned[1] = 5;  // of an entry that rank 1 owns now
    at::Tensor buffer = at::ones({2});
    compressed_mean(*h.rail, Codec(Payload::kFp32), buffer, {2, 0}, &feedback);
    EXPECT_EQ(buffer[1].item<double>(), 6);
    EXPECT_EQ(feedback.returned.abs().max().item<double>(), 0);
  });
}

}  // namespace
}  // namespace prunex::strategies
