// The share of units kept: values of the cubic by hand.
#include "prunex/sparsity/projection.h"

#include <gtest/gtest.h>

namespace prunex::sparsity {
namespace {

TEST(KeepSchedule, FallsAsACubicBetweenItsEnds) {
  // k0 = 3, k1 = 6: left = 3/4, 1/2, 1/4 of the way at k = 3, 4, 5; keep 0.2 + 0.8 left^3
  const KeepSchedule schedule{.ramp = KeepRamp::kCubic, .start = 3, .end = 6};
  EXPECT_EQ(schedule.share(1, 0.2), 1);
  EXPECT_EQ(schedule.share(2, 0.2), 1);
  EXPECT_DOUBLE_EQ(schedule.share(3, 0.2), 0.2 + 0.8 * 27 / 64);
  EXPECT_DOUBLE_EQ(schedule.share(4, 0.2), 0.2 + 0.8 / 8);
  EXPECT_DOUBLE_EQ(schedule.share(5, 0.2), 0.2 + 0.8 / 64);
  EXPECT_EQ(schedule.share(6, 0.2), 0.2);
  EXPECT_EQ(schedule.share(1'000'000'000, 0.2), 0.2);
}

TEST(KeepSchedule, WithoutARampReachesTheFinalShareAtItsStart) {
  const KeepSchedule schedule{.ramp = KeepRamp::kCubic, .start = 4, .end = 4};
  EXPECT_EQ(schedule.share(3, 0.5), 1);
  EXPECT_EQ(schedule.share(4, 0.5), 0.5);
}

TEST(KeepSchedule, HardIsTheFinalShareFromTheFirstExchange) {
  const KeepSchedule schedule{.ramp = KeepRamp::kHard, .start = 5, .end = 9};
  for (int64_t k : {1, 5, 9, 20}) EXPECT_EQ(schedule.share(k, 0.3), 0.3) << k;
}

TEST(KeepSchedule, KeepsEverythingWhenTheFinalShareIsOne) {
  const KeepSchedule schedule{.ramp = KeepRamp::kCubic, .start = 1, .end = 5};
  for (int64_t k = 1; k < 8; ++k) EXPECT_EQ(schedule.share(k, 1), 1) << k;
}

TEST(UnitsKept, RoundsHalvesUpAndKeepsAtLeastOne) {
  EXPECT_EQ(units_kept(10, 0.5), 5);
  EXPECT_EQ(units_kept(5, 0.5), 3);   // 2.5
  EXPECT_EQ(units_kept(7, 0.35), 2);  // 2.45
  EXPECT_EQ(units_kept(9, 0.5), 5);   // 4.5
  EXPECT_EQ(units_kept(64, 1.0), 64);
  EXPECT_EQ(units_kept(64, 1e-9), 1);
  EXPECT_EQ(units_kept(1, 0.1), 1);
}

}  // namespace
}  // namespace prunex::sparsity
