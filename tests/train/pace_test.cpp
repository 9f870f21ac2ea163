#include "prunex/train/steps/pace.h"

#include <gtest/gtest.h>

#include "prunex/comm/connect.h"

namespace prunex::train {
namespace {

/// Each rank's steps since begin(), a second each, but of the slow ones; then they agree.
int64_t make_steps(Pace& pace, comm::Hierarchy& ranks, int64_t steps, double seconds) {
  pace.begin(steps, 100);
  double now = 100;
  while (pace.made() < steps && !pace.is_late(now)) pace.made_step(now += seconds);
  return pace.agree(ranks, ranks.layout.world_size());
}

TEST(Pace, WaitsForEverybodyWithoutAFactor) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    Pace pace(0);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(make_steps(pace, ranks, 8, ranks.layout.rank == 0 ? 1 : 100), 16);
      EXPECT_EQ(ranks.share, 1);
    }
    EXPECT_EQ(pace.agree(ranks, 1), 8);
  });
}

TEST(Pace, EndsStepsThatWouldMissTheDeadline) {
  comm::run_ranks(3, 1, [](comm::Hierarchy& ranks) {
    const bool slow = ranks.layout.rank == 2;
    Pace pace(1.5);
    EXPECT_EQ(make_steps(pace, ranks, 8, slow ? 4 : 1), 24);  // nobody knows yet how long the others take
    EXPECT_EQ(ranks.share, 1);
    EXPECT_EQ(make_steps(pace, ranks, 8, slow ? 4 : 1), 8 + 8 + 3);  // 12 s: three steps of 4 s
    EXPECT_EQ(pace.made(), slow ? 3 : 8);
    EXPECT_DOUBLE_EQ(ranks.share, (slow ? 3 : 8) * 3 / 19.0);
    EXPECT_EQ(make_steps(pace, ranks, 4, slow ? 4 : 1), 4 + 4 + 1);  // fewer steps, the same pace
  });
}

TEST(Pace, AlwaysLeavesAStep) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    Pace pace(1);
    make_steps(pace, ranks, 4, 1);
    make_steps(pace, ranks, 4, ranks.layout.rank == 0 ? 1000 : 1);
    EXPECT_EQ(pace.made(), ranks.layout.rank == 0 ? 1 : 4);
  });
}

TEST(Pace, CountsTheRanksOfANodeTogether) {
  comm::run_ranks(2, 2, [](comm::Hierarchy& ranks) {
    const bool slow = ranks.layout.rank == 3;
    Pace pace(1);
    make_steps(pace, ranks, 6, 1);
    EXPECT_EQ(make_steps(pace, ranks, 6, slow ? 3 : 1), 6 + 6 + 6 + 2);
    EXPECT_DOUBLE_EQ(ranks.share, (ranks.layout.node() == 0 ? 6 : 4) * 4 / 20.0);
  });
}

TEST(Pace, WeighsNodesOfDifferentSizesByTheirSteps) {
  comm::run_ranks({.node_sizes = {2, 1}}, [](comm::Hierarchy& ranks) {
    Pace pace(1);
    make_steps(pace, ranks, 6, 1);
    make_steps(pace, ranks, 6, ranks.layout.rank == 2 ? 2 : 1);
    const double mean = ranks.share * ranks.layout.ranks_here() / ranks.layout.mean_node_size();
    EXPECT_DOUBLE_EQ(mean, (ranks.layout.node() == 0 ? 12 : 3) * 2 / 15.0);
  });
}

TEST(Pace, OfWhoHasMadeNoStepsSaysNothing) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    Pace pace(2);
    pace.begin(4, 100);
    for (int i = 0; i < 4 && ranks.layout.rank == 0; ++i) pace.made_step(101 + i);
    EXPECT_EQ(pace.agree(ranks, 1), 4);
    EXPECT_EQ(ranks.share, ranks.layout.rank == 0 ? 2 : 0);
    pace.begin(4, 100);
    pace.made_step(101);
    EXPECT_FALSE(pace.is_late(102));
  });
}

}  // namespace
}  // namespace prunex::train
