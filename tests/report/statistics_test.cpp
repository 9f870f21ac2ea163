// Expected values: printed tables of Student's t (two-sided 95 %), and sums done by hand.
#include "report/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace prunex::report {
namespace {

TEST(Statistics, QuantilesAreThoseOfPrintedTables) {
  const std::pair<int, double> table[] = {{1, 12.7062}, {2, 4.3027},  {3, 3.1824},  {4, 2.7764},
                                          {5, 2.5706},  {10, 2.2281}, {30, 2.0423}, {120, 1.9799}};
  for (const auto& [freedom, t] : table) EXPECT_NEAR(student_quantile(0.95, freedom), t, 5e-5) << freedom;
  EXPECT_NEAR(student_quantile(0.99, 7), 3.4995, 5e-5);
}

TEST(Statistics, OneDegreeOfFreedomIsCauchy) {
  for (const double t : {0.1, 1.0, 7.0}) {
    EXPECT_NEAR(student_two_sided(t, 1), 2 / std::acos(-1.0) * std::atan(t), 1e-12);
  }
}

TEST(Statistics, QuantilesBetweenWholeDegreesAreClose) {
  EXPECT_NEAR(student_quantile(0.95, 2.5), 3.5747, 0.02);  // Simpson's rule over the density
  EXPECT_NEAR(student_quantile(0.95, 5.5), 2.5019, 0.002);
}

TEST(Statistics, SpreadOfFourValuesByHand) {
  const Spread spread = spread_of({1, 2, 3, 6});  // mean 3, squares 4 + 1 + 0 + 9 = 14
  EXPECT_EQ(spread.count, 4U);
  EXPECT_DOUBLE_EQ(spread.mean, 3);
  EXPECT_DOUBLE_EQ(spread.low, 1);
  EXPECT_DOUBLE_EQ(spread.high, 6);
  EXPECT_DOUBLE_EQ(spread.deviation, std::sqrt(14.0 / 3));
  EXPECT_NEAR(spread.half_width, 3.18245 * std::sqrt(14.0 / 3) / 2, 1e-4);
}

TEST(Statistics, FewValuesHaveNoInterval) {
  EXPECT_EQ(spread_of({}).count, 0U);
  EXPECT_EQ(spread_of({5}).half_width, 0);
  EXPECT_EQ(difference(spread_of({5}), spread_of({1, 2, 3})).half_width, 0);
  EXPECT_EQ(difference(spread_of({5}), spread_of({1, 2, 3})).mean, 3);
}

TEST(Statistics, WelchOfEqualSpreadsHasAllDegreesOfFreedom) {
  const Spread a = spread_of({1, 2, 3}), b = spread_of({11, 12, 13});  // both have variance 1, so 4 degrees
  EXPECT_NEAR(difference(b, a).mean, 10, 1e-12);
  EXPECT_NEAR(difference(b, a).half_width, 2.7764 * std::sqrt(2.0 / 3), 1e-4);
}

TEST(Statistics, OfEqualSeedsThePairsAreCompared) {
  const std::map<std::string, double> a{{"0", 5}, {"1", 15}, {"2", 27}}, b{{"0", 4}, {"1", 13}, {"2", 24}, {"3", 90}};
  EXPECT_NEAR(difference(a, b).mean, 2, 1e-12);
  EXPECT_NEAR(difference(a, b).half_width, 4.3027 / std::sqrt(3), 1e-4);  // differences 1, 2, 3
  const std::map<std::string, double> strangers{{"7", 1}, {"8", 2}};
  EXPECT_NEAR(difference(a, strangers).mean, 47.0 / 3 - 1.5, 1e-12);
  EXPECT_NEAR(difference({{"1", 20}}, a).mean, 20 - 15, 1e-12);  // one seed is held against its own
}

TEST(Statistics, ADifferenceKnowsItsPairs) {
  const Difference pairs = difference({{"0", 5}, {"1", 15}, {"2", 27}}, {{"0", 4}, {"1", 13}, {"2", 24}, {"3", 90}});
  EXPECT_EQ(pairs.pairs, 3U);
  EXPECT_NEAR(pairs.deviation, 1, 1e-12);  // differences 1, 2, 3
  EXPECT_TRUE(pairs.is_none());            // 2 ± 2.5
  EXPECT_EQ(difference({{"0", 1}}, {{"0", 2}}).pairs, 1U);
  EXPECT_FALSE(difference({{"0", 1}}, {{"0", 2}}).is_none());
  EXPECT_FALSE((Difference{.mean = -0.4, .half_width = 0.3}).is_none());
  EXPECT_TRUE((Difference{.mean = -0.3, .half_width = 0.4}).is_none());
}

// t of n - 1 degrees, from the table, times deviation / sqrt(n): the last n that does not tell 0.3, the first that does
TEST(Statistics, SeedsToTellADifferenceAreTheFirstWithANarrowerInterval) {
  EXPECT_GT(12.7062 * 0.1 / std::sqrt(2), 0.3);
  EXPECT_LT(4.3027 * 0.1 / std::sqrt(3), 0.3);
  EXPECT_EQ(seeds_to_tell(0.3, 0.1), 3);
  EXPECT_GT(3.1824 * 0.2 / std::sqrt(4), 0.3);
  EXPECT_LT(2.7764 * 0.2 / std::sqrt(5), 0.3);
  EXPECT_EQ(seeds_to_tell(0.3, 0.2), 5);
  EXPECT_GT(2.0423 * 0.82 / std::sqrt(31), 0.3);
  EXPECT_LT(2.0395 * 0.82 / std::sqrt(32), 0.3);
  EXPECT_EQ(seeds_to_tell(0.3, 0.82), 32);
  EXPECT_EQ(seeds_to_tell(0.3, 0), 2);  // one has no interval
  EXPECT_EQ(seeds_to_tell(0.001, 1), std::nullopt);
  EXPECT_EQ(seeds_to_tell(0, 0), std::nullopt);
}

TEST(Statistics, WhatRoundingLeavesIsNoSpread) {
  ASSERT_NE(0.57 - 0.5, 0.07 - 0.0);  // both are 0.07 by hand
  const std::map<std::string, double> a{{"0", 0.07}, {"1", 0.57}}, b{{"0", 0.0}, {"1", 0.5}};
  EXPECT_NEAR(difference(a, b).mean, 0.07, 1e-15);
  EXPECT_EQ(difference(a, b).half_width, 0);
  ASSERT_NE((0.57 - 0.5) + (0.0 - 0.07), 0);  // 0.07 and -0.07
  const std::map<std::string, double> c{{"0", 0.0}, {"1", 0.57}}, d{{"0", 0.07}, {"1", 0.5}};
  EXPECT_EQ(difference(c, d).mean, 0);
  EXPECT_NEAR(difference(c, d).half_width, 12.7062 * 0.07, 1e-4);
  ASSERT_NE(0.9 / 3 + 0.9 / 3 + 0.9 / 3, 0.9);
  EXPECT_EQ(spread_of({0.9, 0.9, 0.9}).mean, 0.9);
  EXPECT_EQ(spread_of({0.9, 0.9, 0.9}).half_width, 0);
}

}  // namespace
}  // namespace prunex::report
