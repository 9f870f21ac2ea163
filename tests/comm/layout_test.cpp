// Who stands where: small layouts, worked out by hand.
#include "prunex/comm/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;

TEST(Layout, NumbersRanksNodeByNode) {
  const Layout layout = {.node_sizes = {3, 1, 2}, .rank = 4};
  EXPECT_EQ(layout.nodes(), 3);
  EXPECT_EQ(layout.world_size(), 6);
  EXPECT_EQ(layout.node(), 2);
  EXPECT_EQ(layout.local_rank(), 0);
  EXPECT_EQ(layout.ranks_here(), 2);
  EXPECT_EQ(layout.first_rank(1), 3);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ((Layout{{3, 1, 2}, rank}.node()), (rank < 3 ? 0 : rank < 4 ? 1 : 2)) << rank;
  }
}

TEST(Layout, HasAsManyRailsAsTheSmallestNodeHasRanks) {
  Layout layout = {.node_sizes = {3, 2}, .rank = 1};
  EXPECT_EQ(layout.rails(), 2);
  EXPECT_TRUE(layout.on_rail());
  layout.rank = 2;
  EXPECT_FALSE(layout.on_rail());
  EXPECT_DOUBLE_EQ(layout.mean_node_size(), 2.5);
}

TEST(Layout, IsEvenWhereAllNodesAreAlike) {
  EXPECT_TRUE(Layout::even(3, 2, 0).is_even());
  EXPECT_EQ(Layout::even(3, 2, 5).node(), 2);
  EXPECT_FALSE((Layout{{2, 1}}).is_even());
}

TEST(Layout, GivesEverySiteConsecutiveNodes) {
  const Layout layout = {.node_sizes = {1, 1, 2, 1}, .rank = 3, .sites = 2};
  EXPECT_EQ(layout.nodes_per_site(), 2);
  EXPECT_EQ(layout.site(), 1);
}

TEST(Layout, OfMoreRanksThanCanBeCountedIsRefusedBeforeTheyAreCounted) {
  constexpr int kMost = std::numeric_limits<int>::max();
  for (const auto& sizes : {std::vector<int>{kMost, kMost}, {kMost, 1}, {kMostRanks, 1}, {kMost, kMost, 3}}) {
    EXPECT_THAT(tests::message([&] { check({.node_sizes = sizes}); }), HasSubstr("wanted at most 1000000 ranks"));
  }
  EXPECT_THAT(tests::message([&] { check({.node_sizes = {kMost, -kMost, 1}}); }), HasSubstr("every node needs a rank"));
  EXPECT_THAT(tests::message([&] { Layout::even(kMost, kMost); }), HasSubstr("wanted at most 1000000 ranks"));
  check({.node_sizes = {kMostRanks}});
}

TEST(Layout, IsDescribedInWords) {
  EXPECT_EQ(describe(Layout::even(2, 3, 1)), "2 nodes x 3 ranks");
  EXPECT_EQ(describe({.node_sizes = {2, 1}, .sites = 2}), "nodes of 2, 1 ranks on 2 sites");
}

}  // namespace
}  // namespace prunex::comm
