// Bytes between nodes of strategies that see every step's gradients, against the table of docs/strategies.md, on three
// nodes of two ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "prunex/strategies/gradients/gradients.h"
#include "tests/strategies/gradient_runs.h"

namespace prunex::strategies {
namespace {

constexpr int64_t M = 3, P = 2;
constexpr int64_t kMatrices[][2] = {{6, 27}, {5, 36}, {4, 20}};  // rows, columns; tests/groups.h
constexpr int64_t kInVectors = 6 + 7, kNumbers = 6 * 27 + 5 * 36 + 4 * 20 + kInVectors, kStatistics = 6;

/// What all nodes together send in every step.
std::vector<int64_t> bytes_of_steps(const Make& make, int64_t steps) {
  const GradientRun run{.steps = steps, .type = at::kFloat};
  const auto ranks = run_steps(comm::Layout::even(M, P), make, run);
  std::vector<int64_t> bytes(static_cast<size_t>(steps));
  for (const auto& rank : ranks) {
    for (size_t step = 0; step < bytes.size(); ++step) bytes[step] += rank[step].sent_to_nodes;
  }
  return bytes;
}

/// M nodes that each send `bytes_of_node` per step.
void expect_bytes(const Make& make, double bytes_of_node, const std::string& what) {
  for (const int64_t bytes : bytes_of_steps(make, 3)) {
    EXPECT_EQ(static_cast<double>(bytes), M * bytes_of_node) << what;
  }
}

constexpr double kOfAnAllReduce = 2.0 * (M - 1) / M;
constexpr Reporting kThreeSteps{.steps = 3, .total_steps = 3};

Make counted_ddp(DdpOptions options) {
  options.reporting = kThreeSteps;
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_ddp(replica, ranks, options); };
}

TEST(GradientTraffic, OfDdpIsAnAllReduceOverNodesOrHalfOfIt) {
  expect_bytes(counted_ddp({}), kOfAnAllReduce * 4 * kNumbers, "fp32");
  expect_bytes(counted_ddp({.exchange = {.form = ExchangeForm::kLeader}}), kOfAnAllReduce * 4 * kNumbers, "leader");
  expect_bytes(counted_ddp({.exchange = {.payload = Payload::kFp16}}), kOfAnAllReduce * 2 * kNumbers, "fp16");
  expect_bytes(counted_ddp({.exchange = {.payload = Payload::kBf16}}), kOfAnAllReduce * 2 * kNumbers, "bf16");
  expect_bytes(counted_ddp({.exchange = {ExchangeForm::kLeader, Payload::kBf16}}), kOfAnAllReduce * 2 * kNumbers,
               "bf16, leader");
}

Make top_k(double density) {
  return [density](Replica& replica, comm::Hierarchy& ranks) {
    return make_top_k(replica, ranks, {.reporting = kThreeSteps, .density = density});
  };
}

int64_t entries_of(double density) {
  int64_t entries = 0;
  for (const auto& [rows, columns] : kMatrices) {
    entries += std::llround(std::ceil(density * static_cast<double>(rows * columns)));
  }
  return entries;
}

TEST(GradientTraffic, OfTopKIsEveryRanksEntriesToEveryOtherNode) {
  const int64_t entries = entries_of(0.1);
  expect_bytes(top_k(0.1), static_cast<double>((M - 1) * P * 8 * entries) + kOfAnAllReduce * 4 * kInVectors, "top_k");
}

/// Nodes of one, three and two ranks: node i sends the entries of its P_i ranks to the W - P_i of the others.
TEST(GradientTraffic, OfTopKCountsTheRanksOfNodesOfDifferentSizes) {
  const std::vector<int> sizes{1, 3, 2};
  int64_t all = 0, wanted = 2 * (3 - 1) * 4 * kInVectors;  // of vectors: an all-reduce over nodes
  for (const auto& rank : run_steps(comm::Layout{.node_sizes = sizes}, top_k(0.1), {.steps = 1, .type = at::kFloat})) {
    all += rank[0].sent_to_nodes;
  }
  for (const int64_t size : sizes) wanted += size * (6 - size) * 8 * entries_of(0.1);
  EXPECT_EQ(all, wanted);
}

TEST(GradientTraffic, OfPowerSgdIsItsFactorsAndTheRestWhole) {
  for (const int64_t rank : {1, 2}) {
    int64_t numbers = kInVectors;
    for (const auto& [rows, columns] : kMatrices) {
      const int64_t factors = rank * (rows + columns);
      numbers += 2 * factors < rows * columns ? factors : rows * columns;
    }
    const Make make = [rank](Replica& replica, comm::Hierarchy& ranks) {
      return make_powersgd(replica, ranks, {.reporting = kThreeSteps, .rank = rank});
    };
    expect_bytes(make, kOfAnAllReduce * 4 * static_cast<double>(numbers), "rank " + std::to_string(rank));
  }
}

// Two exchanges of two steps with gradients, then weights and statistics every second step.
TEST(GradientTraffic, OfPostLocalSgdIsDdpsAndThenThatOfLocalSgd) {
  const auto bytes = bytes_of_steps(post_local(2, {.steps = 2, .total_steps = 8}), 8);
  const int64_t gradients = 2 * (M - 1) * 4 * kNumbers, weights = 2 * (M - 1) * 4 * (kNumbers + kStatistics);
  EXPECT_EQ(bytes, (std::vector<int64_t>{gradients, gradients, gradients, gradients, 0, weights, 0, weights}));
}

}  // namespace
}  // namespace prunex::strategies
