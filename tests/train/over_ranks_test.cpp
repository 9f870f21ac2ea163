// What ranks, as threads, find out about each other; written out by hand.
#include "prunex/train/over_ranks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "prunex/comm/connect.h"
#include "tests/texts.h"

namespace prunex::train {
namespace {

using testing::Each;
using tests::message;

constexpr int kRanks = 3;

/// One per rank.
template <class Value>
using OfRanks = std::array<Value, kRanks>;

/// What each rank makes of its own value, together with the others.
template <class Result, class Value, class Call>
OfRanks<Result> on_ranks(const OfRanks<Value>& values, const Call& call) {
  OfRanks<Result> results;
  comm::run_ranks(kRanks, 1, [&](comm::Hierarchy& ranks) {
    const auto rank = static_cast<size_t>(ranks.layout.rank);
    results[rank] = call(values[rank], *ranks.world);
  });
  return results;
}

OfRanks<int64_t> counts_of_all(const OfRanks<std::vector<int64_t>>& numbers) {
  return on_ranks<int64_t>(numbers, count_of_all);
}

TEST(CountOfAll, CountsEveryNumberOnce) {
  EXPECT_THAT(counts_of_all({{{4, 0}, {}, {5, 4, 5}}}), Each(3));
  EXPECT_THAT(counts_of_all({{{0}, {1, 2, 3}, {4}}}), Each(5));
  EXPECT_THAT(counts_of_all({}), Each(0));
}

/// Of three rows of a 3 x 6 tensor these are left.
sparsity::Cut cut_to(const std::vector<int64_t>& rows) {
  sparsity::Cut cut;
  cut.tensors["w"] = {{3, 6}, {{0, rows}}};
  return cut;
}

OfRanks<std::string> said_of(const OfRanks<sparsity::Cut>& cuts) {
  return on_ranks<std::string>(cuts, [](const sparsity::Cut& cut, comm::Communicator& world) {
    return message([&] { check_agreement(cut, world); });
  });
}

TEST(Agreement, IsThatAllRanksCutTheSame) {
  EXPECT_THAT(said_of({cut_to({0, 2}), cut_to({0, 2}), cut_to({0, 2})}), Each("no exception"));
  EXPECT_THAT(said_of({cut_to({0, 2}), cut_to({0, 2}), cut_to({1, 2})}),
              Each("rank 2 would cut the network differently from rank 0"));
}

TEST(OptionsOfRanks, AreTheSameWhereRanksDoTogetherWhatTheySay) {
  const auto refusal = [](const std::string& first, const std::string& second) {
    std::vector<std::string> said(2);
    comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
      said[ranks.layout.rank] =
          message([&] { expect_same_options(ranks.layout.rank == 0 ? first : second, *ranks.world); });
    });
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  };
  EXPECT_EQ(refusal("eval-every = 5\nthreads = 1\n", "eval-every = 5\nthreads = 2\n"), "no exception");
  EXPECT_EQ(refusal("eval-every = 5\n", "eval-every = 0\n"),
            "`eval_every`: rank 0 has 5, rank 1 0: wanted the same on all ranks");
  EXPECT_EQ(refusal("trace = false\n", "trace = true\n"),
            "`trace`: rank 0 has false, rank 1 true: wanted the same on all ranks");
}

TEST(Agreement, WithNobodyElseIsNotAsked) {
  comm::run_ranks(1, 1, [](comm::Hierarchy& ranks) { EXPECT_NO_THROW(check_agreement(cut_to({0}), *ranks.world)); });
}

OfRanks<Arithmetic> arithmetic_of_ranks(Precision precision, const c10::Device& device) {
  return on_ranks<Arithmetic>(
      OfRanks<Precision>{precision, precision, precision},
      [&](Precision wanted, comm::Communicator& world) { return decide_arithmetic(wanted, device, world); });
}

TEST(ArithmeticOfRanks, IsTheOneThatWasAskedFor) {
  for (const c10::Device device : {at::kCPU, at::kCUDA}) {
    EXPECT_THAT(arithmetic_of_ranks(Precision::kFp32, device), Each(Arithmetic::kFp32));
    EXPECT_THAT(arithmetic_of_ranks(Precision::kTf32, device), Each(Arithmetic::kTf32));
    EXPECT_THAT(arithmetic_of_ranks(Precision::kBf16, device), Each(Arithmetic::kBf16));
  }
}

/// As the system describes this processor.
bool multiplies_bf16_faster() {
  std::ifstream file("/proc/cpuinfo");
  const std::set<std::string> words{std::istream_iterator<std::string>(file), {}};
  return words.contains("avx512_bf16") && (!words.contains("GenuineIntel") || words.contains("amx_bf16"));
}

TEST(ArithmeticOfRanks, IsElseWhatTheProcessorsOrTheDeviceHave) {
  const auto of_processors = multiplies_bf16_faster() ? Arithmetic::kBf16 : Arithmetic::kFp32;
  EXPECT_THAT(arithmetic_of_ranks(Precision::kAuto, at::kCPU), Each(of_processors));
  EXPECT_THAT(arithmetic_of_ranks(Precision::kAuto, at::kCUDA), Each(Arithmetic::kTf32));
  EXPECT_THAT(arithmetic_of_ranks(Precision::kAuto, at::kPrivateUse1), Each(Arithmetic::kFp32));
}

/// Rank 2 says what a rank says whose processor does not multiply bf16.
TEST(ArithmeticOfRanks, IsFp32OnAllProcessorsIfOneLacksBf16) {
  comm::run_ranks(kRanks, 1, [](comm::Hierarchy& ranks) {
    if (ranks.layout.rank == 2) {
      at::Tensor without = at::ones({1}, at::kLong);
      ranks.world->all_reduce(without);
      return;
    }
    EXPECT_EQ(decide_arithmetic(Precision::kAuto, at::kCPU, *ranks.world), Arithmetic::kFp32);
  });
}

}  // namespace
}  // namespace prunex::train
