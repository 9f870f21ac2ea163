// Expected values: the definition of a linear and of a logarithmic scale, and numbers written by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/drawing.h"
#include "report/plot.h"

namespace prunex::report {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pointwise;

Range range_of(ScaleKind kind, const std::vector<double>& values) {
  Range range(kind);
  for (const double value : values) range.add(value);
  return range;
}

TEST(Scale, LinearTicksAreWholeSteps) {
  const Scale scale(ScaleKind::kLinear, range_of(ScaleKind::kLinear, {0.13, 0.87}), 0, 100);
  EXPECT_THAT(scale.ticks(), Pointwise(DoubleNear(1e-12), {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}));
  EXPECT_DOUBLE_EQ(scale.position(0.25), 25);
}

TEST(Scale, LogarithmicPlacesPowersOfTenEvenly) {
  const Scale scale(ScaleKind::kLog, range_of(ScaleKind::kLog, {1e3, 1e9}), 600, 0);
  EXPECT_THAT(scale.ticks(), Pointwise(DoubleNear(1), {1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}));
  for (int i = 0; i <= 6; ++i) EXPECT_NEAR(scale.position(1e3 * std::pow(10, i)), 600 - 100 * i, 1e-9);
}

TEST(Scale, AShortLogarithmicRangeHasTicksAtOneTwoAndFive) {
  const Scale scale(ScaleKind::kLog, range_of(ScaleKind::kLog, {24, 130}), 0, 1);
  EXPECT_THAT(scale.ticks(), Pointwise(DoubleNear(1e-9), {20.0, 50.0, 100.0, 200.0}));
}

TEST(Scale, ManyDecadesAreThinned) {
  const Scale scale(ScaleKind::kLog, range_of(ScaleKind::kLog, {1e-9, 1e9}), 0, 1);
  EXPECT_LE(scale.ticks().size(), 9U);
  EXPECT_GE(scale.ticks().size(), 5U);
}

TEST(Scale, NothingOrOneValueStillMakesAScale) {
  EXPECT_THAT(Scale(ScaleKind::kLinear, Range(), 0, 1).ticks(), Not(testing::IsEmpty()));
  EXPECT_THAT(Scale(ScaleKind::kLog, Range(ScaleKind::kLog), 0, 1).ticks(), Not(testing::IsEmpty()));
  const Scale one(ScaleKind::kLinear, range_of(ScaleKind::kLinear, {5}), 0, 10);
  EXPECT_DOUBLE_EQ(one.position(5), 10);
  const Scale negative(ScaleKind::kLinear, range_of(ScaleKind::kLinear, {-3}), 0, 10);
  EXPECT_LT(negative.low(), negative.high());
  const Scale logarithmic(ScaleKind::kLog, range_of(ScaleKind::kLog, {10}), 0, 1);
  EXPECT_LT(logarithmic.low(), logarithmic.high());
}

TEST(Scale, WhatCannotBeShownIsLeftOut) {
  const auto range = range_of(ScaleKind::kLog, {0, -1, std::numeric_limits<double>::infinity(), NAN, 3});
  EXPECT_DOUBLE_EQ(range.low(), 3);
  EXPECT_DOUBLE_EQ(range.high(), 3);
}

TEST(Axis, TicksOfATimeAreInOneUnit) {
  const AxisScale scale({"time", Unit::kSeconds}, {0, 5400}, 0, 100);  // 90 minutes
  std::vector<std::string> texts;
  for (const auto& tick : scale.ticks()) texts.push_back(tick.text);
  EXPECT_THAT(texts, ElementsAre("0", "20 min", "40 min", "60 min", "80 min", "100 min"));
  EXPECT_NEAR(scale.position(3000), 50, 1e-9);
}

TEST(Axis, TicksHaveTheDecimalsOfTheirDistance) {
  const auto texts_of = [](const AxisScale& scale) {
    std::vector<std::string> texts;
    for (const auto& tick : scale.ticks()) texts.push_back(tick.text);
    return texts;
  };
  EXPECT_THAT(texts_of(AxisScale({"accuracy", Unit::kShare}, {0.9112, 0.9121}, 0, 100)),
              ElementsAre("91.12 %", "91.14 %", "91.16 %", "91.18 %", "91.2 %", "91.22 %"));
  EXPECT_THAT(texts_of(AxisScale({"parameters"}, {1000.1, 1000.9}, 0, 100)),
              ElementsAre("1000", "1000.2", "1000.4", "1000.6", "1000.8", "1001"));
}

TEST(Axis, MarksReplaceRoundTicks) {
  const AxisScale scale({"ranks", Unit::kNumber, ScaleKind::kLog, false, {2, 4, 8}}, {2, 4, 8}, 0, 100);
  ASSERT_EQ(scale.ticks().size(), 3U);
  EXPECT_EQ(scale.ticks()[1].text, "4");
  EXPECT_DOUBLE_EQ(scale.ticks()[1].at, scale.position(4));
}

TEST(Format, ChoosesUnitsAndDigits) {
  EXPECT_EQ(format(1500000, Unit::kBytes), "1.5 MB");
  EXPECT_EQ(format(999, Unit::kBytes), "999 B");
  EXPECT_EQ(format(0.25, Unit::kShare), "25 %");
  EXPECT_EQ(format(0, Unit::kSeconds), "0");
  EXPECT_EQ(format(0.02, Unit::kSeconds), "20 ms");
  EXPECT_EQ(format(90, Unit::kSeconds), "90 s");
  EXPECT_EQ(format(1200, Unit::kSeconds), "20 min");
  EXPECT_EQ(format(25000, Unit::kMbit), "25 Gbit/s");
  EXPECT_EQ(format(12.5, Unit::kMbit), "12.5 Mbit/s");
  EXPECT_EQ(format(78042, Unit::kNumber), "78 k");
  EXPECT_EQ(plain(64.86, 3), "64.9");
  EXPECT_EQ(plain(1200, 2), "1200");
  EXPECT_EQ(percent(0.5), "50.00 %");
  EXPECT_EQ(percent(0.5, 0.0062), "50.00 ± 0.62 %");
  EXPECT_EQ(percent(0.5, 0.0102), "50.0 ± 1.0 %");
  EXPECT_EQ(percent(0.5, 1.4612), "50 ± 146 %");
  EXPECT_EQ(escape("a<b & \"c\">\x01"), "a&lt;b &amp; &quot;c&quot;&gt;");
}

// The plot is 640 x 350 with 80 left, 34 right, 16 above and 46 below its axes.
TEST(Plot, DrawsPointsWhereTheScalesPutThem) {
  const std::string svg = draw(Plot{{"x"}, {"y"}, {{"a", 0, {{0, 0, {}}, {5, 10, {}}, {10, 5, {}}}}}, {}});
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,304.0 343.0,16.0 606.0,160.0\""));
}

TEST(Plot, BandsGoThereAndBack) {
  const std::string svg = draw(Plot{{"x"}, {"y"}, {{"a", 0, {{0, 5, Interval{0, 10}}, {10, 5, Interval{5, 10}}}}}, {}});
  EXPECT_THAT(svg, HasSubstr("<polygon points=\"80.0,16.0 606.0,16.0 606.0,160.0 80.0,304.0\""));
}

TEST(Plot, LogarithmicAxesLeaveOutZero) {
  const Plot plot{
      {"x"}, {"y", Unit::kNumber, ScaleKind::kLog}, {{"a", 0, {{0, 0, {}}, {5, 1, {}}, {10, 100, {}}}}}, {}};
  EXPECT_THAT(draw(plot), HasSubstr("points=\"343.0,304.0 606.0,16.0\""));
}

TEST(Plot, ASinglePointIsAMark) {
  const std::string svg = draw(Plot{{"x"}, {"y"}, {{"one", 3, {{1, 1, {}}}}}, {}});
  EXPECT_THAT(svg, HasSubstr("class=\"m s3\""));
  EXPECT_THAT(svg, Not(HasSubstr("polyline")));
}

TEST(Plot, ThinsLongLinesButKeepsTheirEnds) {
  EXPECT_THAT(thinned(4, 10), ElementsAre(0, 1, 2, 3));
  const auto few = thinned(10001, 101);
  EXPECT_EQ(few.size(), 101U);
  EXPECT_EQ(few[1], 100U);
  EXPECT_EQ(few.back(), 10000U);
}

TEST(Styles, NoTwoOfTwentyEightLookAlike) {
  std::set<std::string> looks;
  for (int i = 0; i < 28; ++i) looks.insert(Style(i).colour() + std::string(Style(i).dashes()));
  EXPECT_EQ(looks.size(), 28U);
}

// Bars start at 200 and end at 574; two parts of 30 and 20 on a scale to 50.
TEST(Bars, StackTheirParts) {
  const std::string svg = draw(Bars{{"bytes"}, {"one", "two"}, {{"a", {30, 20}}}});
  EXPECT_THAT(svg, HasSubstr("<rect x=\"200.00\" y=\"12.00\" width=\"224.40\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"424.40\" y=\"12.00\" width=\"149.60\""));
}

TEST(Strips, FillWhatIsKept) {
  const std::string svg = draw_strips("run", {{"g", {true, false, true}}});
  EXPECT_THAT(svg, HasSubstr(">2/3<"));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"212.00\" y=\"28.00\" width=\"12.00\" height=\"13.00\" class=\"off\""));
}

}  // namespace
}  // namespace prunex::report
