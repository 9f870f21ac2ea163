// The formulas of docs/communication.md, "Cost", at numbers worked out by hand.
#include "prunex/comm/cost_model.h"

#include <gtest/gtest.h>

namespace prunex::comm {
namespace {

constexpr double kMB = 1e6;

TEST(CostModel, NodesSendTwiceTheirShareOfTheRing) {
  EXPECT_DOUBLE_EQ(node_bytes(Form::kFlat, 8 * kMB, {2, 2}), 12 * kMB);  // 2 * 3/4
  EXPECT_DOUBLE_EQ(node_bytes(Form::kLeader, 8 * kMB, {2, 2}), 8 * kMB);
  EXPECT_DOUBLE_EQ(node_bytes(Form::kSharded, 8 * kMB, {4, 2}), 12 * kMB);
  EXPECT_EQ(node_bytes(Form::kFlat, 8 * kMB, {1, 4}), 0);
  EXPECT_EQ(least_node_bytes(8 * kMB, {2, 2}), 8 * kMB);
}

TEST(CostModel, SecondsAreWireLatencyAndWhatDoesNotHide) {
  const Speeds speeds{.link = 50 * kMB, .latency = 0.001, .memory = 1000 * kMB};
  EXPECT_NEAR(predicted_seconds(Form::kFlat, 8 * kMB, {2, 2}, speeds), 12.0 / 50 + 6 * 0.001, 1e-12);
  EXPECT_NEAR(predicted_seconds(Form::kLeader, 8 * kMB, {2, 2}, speeds), 8.0 / 50 + 2 * 0.001 + 4 * 8.0 / 1000, 1e-12);
  EXPECT_NEAR(predicted_seconds(Form::kSharded, 8 * kMB, {2, 2}, speeds), 8.0 / 50 + 2 * 0.001 + 4 * 262144 / 1e9,
              1e-12);
  // one rank per node has nobody to add up with
  EXPECT_NEAR(predicted_seconds(Form::kLeader, 8 * kMB, {2, 1}, speeds), 8.0 / 50 + 2 * 0.001, 1e-12);
}

}  // namespace
}  // namespace prunex::comm
