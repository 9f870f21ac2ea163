// Bytes between nodes against docs/communication.md: alive entries, counted one by one, and what decides the masks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/groups.h"
#include "tests/strategies/small_problem.h"
#include "tests/units.h"

namespace prunex::strategies {
namespace {

constexpr int64_t kStatistic = 6;  // the floating-point buffer; the counter stays where it is

/// Weights alive under the masks after an exchange, and batch-norm statistics.
int64_t numbers_packed(const HsadmmOptions& options, const Snapshot& snapshot) {
  int64_t numbers = kStatistic;
  for (const auto& theta : snapshot.theta) {
    numbers +=
        tests::alive_entries(options.masks.groups, snapshot.masks, theta.key(), theta.value()).sum().item<int64_t>();
  }
  return numbers;
}

/// The payload of exchange k: packed numbers; a double per unit where scores decide the masks, a byte where a node's
/// own masks are united; four doubles per tensor with duals.
int64_t expected_payload(const HsadmmOptions& options, const Snapshot& snapshot, bool was_frozen, int64_t number_size) {
  int64_t units = 0;
  for (const auto& group : options.masks.groups) units += group.size;
  const bool united = options.masks.rule == MaskRule::kUnion && !snapshot.exchange.frozen;
  return number_size * numbers_packed(options, snapshot) + (was_frozen ? 0 : units * (united ? 1 : 8)) +
         static_cast<int64_t>(snapshot.exchange.residuals.size()) * 4 * 8;
}

/// Runs 2 x 2 ranks and compares every exchange of both nodes.
void expect_bytes(const HsadmmOptions& options, at::ScalarType type, const std::string& what) {
  SCOPED_TRACE(what);
  const auto histories = run_on_ranks(2, 2, options, LocalPhase::kTrain, type);
  const int64_t number_size = type == at::kFloat ? 4 : 8;
  bool frozen = false;
  for (size_t k = 0; k + 1 < histories[0].size(); ++k) {
    const int64_t want = expected_payload(options, histories[0][k], frozen, number_size);
    EXPECT_EQ(histories[0][k].rail_payload + histories[1][k].rail_payload, want) << "exchange " << k + 1;
    EXPECT_EQ(histories[2][k].rail_payload + histories[3][k].rail_payload, want) << "exchange " << k + 1;
    int64_t sent = 0;
    for (const auto& history : histories) sent += history[k].rail_sent;
    // 2(M-1) x the payload from both nodes together: no all-reduce can do with less
    EXPECT_EQ(sent, 2 * want) << "exchange " << k + 1;
    for (const int follower : {1, 3}) {
      EXPECT_EQ(histories[follower][k].rail_sent > 0, options.exchange.form == ExchangeForm::kSharded);
    }
    frozen = histories[0][k].exchange.frozen;
  }
  EXPECT_EQ(frozen, options.masks.freeze_after < 6);
}

TEST(Payload, IsEverythingWithoutGroups) {
  HsadmmOptions options = default_options();
  options.masks.groups.clear();
  options.masks.freeze_after = kNever;
  const auto histories = run_on_ranks(2, 1, options);
  const int64_t numbers = 6 * 27 + 6 + 5 * 36 + 4 * 20 + 7 + kStatistic;
  for (size_t k = 0; k < 6; ++k) EXPECT_EQ(histories[0][k].rail_payload, 8 * numbers);
  expect_bytes(options, at::kFloat, "floats");
}

TEST(Payload, IsTheFormulaForEveryGroupKind) {
  const auto groups = tests::groups_of_every_kind(0.5);
  std::vector<std::vector<sparsity::Group>> sets{groups, {groups[1], groups[2]}};
  for (const auto& group : groups) sets.push_back({group});
  for (const auto& set : sets) {
    HsadmmOptions options = default_options();
    options.masks.groups = set;
    options.masks.keep.ramp = sparsity::KeepRamp::kHard;
    expect_bytes(options, at::kFloat, set.front().name + ", " + std::to_string(set.size()) + " groups");
  }
}

TEST(Payload, IsTheFormulaWithUnitedMasksAndDualsToTheEnd) {
  HsadmmOptions options = paper_options();
  expect_bytes(options, at::kDouble, "paper");
  options.exchange.form = ExchangeForm::kLeader;
  expect_bytes(options, at::kDouble, "paper, leaders");
  options.masks.freeze_after = kNever;
  expect_bytes(options, at::kDouble, "never frozen");
}

TEST(Payload, ShrinksWithTheMasks) {
  HsadmmOptions options = default_options();
  options.masks.groups = tests::groups_of_every_kind(0.25);
  options.masks.keep.end = 5;
  options.masks.freeze_after = 5;
  const auto history = run_on_ranks(2, 1, options)[0];
  // exchange 1 is dense, the last one neither scores nor reports residuals
  const int64_t dense = 8 * (6 * 27 + 6 + 5 * 36 + 4 * 20 + 7 + kStatistic) + 54 * 8 + 4 * 4 * 8;
  EXPECT_EQ(history[0].rail_payload, dense);
  for (size_t k = 1; k < 5; ++k) EXPECT_LT(history[k].rail_payload, history[k - 1].rail_payload);
  EXPECT_LT(history[5].rail_payload, dense / 4);
}

int64_t sent_by_all(const std::vector<History>& histories, size_t k) {
  int64_t sent = 0;
  for (const auto& history : histories) sent += history[k].sent_to_nodes;
  return sent;
}

/// Of a flat exchange, the bytes "in a node" of docs/communication.md, all ranks being in one: dense sums of theta + u,
/// z, z_node, and sums of scores and of four norms per tensor with duals; from the freeze on what is alive, twice.
int64_t flat_bytes(const HsadmmOptions& options, const Snapshot& snapshot, bool was_frozen, int64_t dense) {
  const int64_t A = numbers_packed(options, snapshot);
  if (was_frozen) return 2 * 4 * A;
  int64_t Z = 0, U = 0;
  for (const auto& [name, residuals] : snapshot.exchange.residuals) {
    Z += tests::alive_entries(options.masks.groups, snapshot.masks, name, snapshot.theta[name]).sum().item<int64_t>();
  }
  for (const auto& group : options.masks.groups) U += group.size;
  return 4 * (dense + A + Z) + 16 * U + 16 * 4 * static_cast<int64_t>(snapshot.exchange.residuals.size());
}

// Every rank sends a share to every other one: P(M-1)/M of the above leaves a node, where rails send 2(M-1)/M of A.
TEST(Payload, OfFlatConsensusGoesToEveryRank) {
  for (const auto& [nodes, ranks] : std::vector<std::pair<int, int>>{{2, 2}, {3, 2}}) {
    HsadmmOptions options = default_options();
    options.consensus.flat = true;
    for (const bool prunes : {true, false}) {
      if (!prunes) options.masks.groups.clear();
      const auto histories = run_on_ranks(nodes, ranks, options, LocalPhase::kTrain, at::kFloat);
      const int64_t dense = numbers_packed(options, histories[0][0]);
      for (size_t k = 0; k < 6; ++k) {
        const int64_t bytes = flat_bytes(options, histories[0][k], k > 3, dense);
        EXPECT_EQ(sent_by_all(histories, k), ranks * (nodes - 1) * bytes) << nodes << " nodes, exchange " << k + 1;
        EXPECT_TRUE(prunes || bytes == 2 * 4 * dense) << "2 P (M-1)/M of what local SGD sends";
      }
    }
  }
}

// One-shot pruning scores from the first exchange on, and sends everything until it prunes in the fourth.
TEST(Payload, OfOneShotIsDenseUntilItPrunes) {
  HsadmmOptions options = default_options();
  options.consensus.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kAverage;
  options.masks.freeze_after = 3;
  options.masks.keep = {.ramp = sparsity::KeepRamp::kCubic, .start = 4, .end = 4};
  const auto histories = run_on_ranks(2, 2, options, LocalPhase::kTrain, at::kFloat);
  const int64_t dense = 6 * 27 + 6 + 5 * 36 + 4 * 20 + 7 + kStatistic, scores = 10 * 8;
  const int64_t pruned = 3 * 27 + 3 + 5 * 18 + 4 * 12 + 7 + kStatistic;  // half of both groups
  const int64_t wanted[] = {4 * dense + scores,  4 * dense + scores, 4 * dense + scores,
                            4 * pruned + scores, 4 * pruned,         4 * pruned};
  for (size_t k = 0; k < 6; ++k) EXPECT_EQ(sent_by_all(histories, k), 2 * wanted[k]) << "exchange " << k + 1;
}

TEST(Payload, OfASingleNodeIsNothing) {
  const auto histories = run_on_ranks(1, 2, default_options());
  for (const Snapshot& snapshot : histories[0]) EXPECT_EQ(snapshot.rail_payload, 0);
}

}  // namespace
}  // namespace prunex::strategies
