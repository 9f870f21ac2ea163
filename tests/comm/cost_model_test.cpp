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

// 8 nodes in 2 sites of 4: 2 * 3/4 of 8 MB in the site, of the quarter that a node then has 2 * 1/2 to the other one.
TEST(CostModel, SitesSumUpBeforeTheySendOneCopy) {
  const ClusterShape shape{8, 1, 2};
  EXPECT_DOUBLE_EQ(node_bytes(Form::kSharded, 8 * kMB, shape), 12 * kMB + 2 * kMB);
  EXPECT_DOUBLE_EQ(site_bytes(Form::kSharded, 8 * kMB, shape), 8 * kMB);
  EXPECT_EQ(site_bytes(Form::kSharded, 8 * kMB, {8, 1}), 0);
  const Speeds speeds{.link = 50 * kMB, .latency = 0.001, .site_link = 4 * kMB, .site_latency = 0.02};
  EXPECT_NEAR(predicted_seconds(Form::kSharded, 8 * kMB, shape, speeds), 12.0 / 50 + 2 * 0.001 + 8.0 / 4 + 2 * 0.02,
              1e-12);
  // behind a wide link the nodes' own are the narrow ones
  EXPECT_NEAR(predicted_seconds(Form::kSharded, 8 * kMB, shape, {.link = 50 * kMB, .site_link = 4000 * kMB}),
              12.0 / 50 + 2e-4 + 2.0 / 50 + 2e-4, 1e-12);
}

// A ring of 8 leaves each site once, with 14/8 of the bytes, and waits for the farthest hop in every step.
TEST(CostModel, ARingThatKnowsNoSitesCrossesEachOfTheirLinksOnce) {
  const Speeds speeds{.link = 50 * kMB, .latency = 0.001, .site_link = 4 * kMB, .site_latency = 0.02};
  EXPECT_DOUBLE_EQ(site_bytes(Form::kFlat, 8 * kMB, {8, 1, 2}), 14 * kMB);
  EXPECT_NEAR(predicted_seconds(Form::kFlat, 8 * kMB, {8, 1, 2}, speeds), 14.0 / 4 + 14 * 0.02, 1e-12);
}

// Each of 8 nodes sends 1/8 to everyone, twice: half of that to the 4 nodes of the other site.
TEST(CostModel, FromEveryoneToEveryoneTakesTwoMessagesAndFillsTheLinkOfASite) {
  EXPECT_DOUBLE_EQ(node_bytes(Form::kDirect, 8 * kMB, {8, 1}), 14 * kMB);
  const Speeds speeds{.link = 50 * kMB, .latency = 0.001, .site_link = 4 * kMB, .site_latency = 0.02};
  EXPECT_NEAR(predicted_seconds(Form::kDirect, 8 * kMB, {8, 1}, speeds), 14.0 / 50 + 2 * 0.001, 1e-12);
  EXPECT_DOUBLE_EQ(site_bytes(Form::kDirect, 8 * kMB, {8, 1, 2}), 4 * 2 * 4 * kMB);
  EXPECT_NEAR(predicted_seconds(Form::kDirect, 8 * kMB, {8, 1, 2}, speeds), 32.0 / 4 + 2 * 0.02, 1e-12);
}

// 4 nodes of 2 ranks with 1 MB each: 3 x 2 MB leave a node; 2 nodes send 2 x 2 MB each to the 2 of the other site.
TEST(CostModel, WhatIsGatheredGrowsWithTheRanks) {
  EXPECT_DOUBLE_EQ(gathered_node_bytes(kMB, {4, 2}), 6 * kMB);
  const Speeds speeds{
      .link = 50 * kMB, .latency = 0.001, .memory = 1000 * kMB, .site_link = 4 * kMB, .site_latency = 0.02};
  EXPECT_NEAR(gathered_seconds(kMB, {4, 2}, speeds), 6.0 / 50 + 0.001 + 4.0 / 1000, 1e-12);
  EXPECT_NEAR(gathered_seconds(kMB, {4, 2, 2}, speeds), 8.0 / 4 + 0.02 + 4.0 / 1000, 1e-12);
  EXPECT_NEAR(gathered_seconds(kMB, {1, 2}, speeds), 4.0 / 1000, 1e-12);
}

TEST(CostModel, OneNodeWaitsForNoWire) {
  for (const Form form : {Form::kFlat, Form::kLeader, Form::kSharded, Form::kDirect}) {
    EXPECT_EQ(predicted_seconds(form, 8 * kMB, {1, 1}, {.link = 1, .latency = 1}), 0);
  }
}

}  // namespace
}  // namespace prunex::comm
