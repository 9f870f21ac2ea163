// Expected values: comm/cost_model.h, which predicts all-reduces, and intersections of lines by hand.
#include "report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/comm/cost_model.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kMbit = 125000;  // bytes

Run run_with(int64_t bytes, double local, const std::string& strategy = "hsadmm") {
  Run run;
  run.options = {{"nodes", "4"}, {"ranks-per-node", "1"}, {"strategy", strategy}};
  run.summary = Summary{.exchanges = 10, .inter_node_bytes = bytes};
  run.summary->seconds = {.local = local, .intra = 1, .project = 2, .inter = 100, .dual = 3, .evaluate = 100};
  return run;
}

TEST(Bandwidth, TenExchangesCostWhatTheCostModelPredicts) {
  const comm::ClusterShape shape{4, 1};
  const double payload = 8e6;
  const auto bytes = static_cast<int64_t>(10 * comm::node_bytes(comm::Form::kSharded, payload, shape));
  const Cost cost = cost_of(run_with(bytes, 50));
  for (const double mbit : {25.0, 400.0, 10000.0}) {
    const double exchange = comm::predicted_seconds(comm::Form::kSharded, payload, shape, {.link = mbit * kMbit});
    EXPECT_NEAR(seconds_at(cost, mbit), 50 + 1 + 2 + 3 + 10 * exchange, 1e-6) << mbit;
  }
}

/// 100 images per exchange; MACs and seconds of their local steps.
std::vector<Exchange> exchanges(const std::vector<std::pair<int64_t, double>>& costs) {
  std::vector<Exchange> all;
  for (const auto& [macs, seconds] : costs) {
    const auto samples = 100 * static_cast<int64_t>(all.size() + 1);
    all.push_back({.samples = samples, .macs = macs, .seconds = {.local = seconds}});
  }
  return all;
}

TEST(UsualSeconds, AreThoseOfTheUsualSpeedOfEverySize) {
  // a pause in the first size and one in the second
  auto run = run_with(0, 50);
  run.exchanges = exchanges({{9, 2}, {9, 50}, {9, 2}, {4, 1}, {4, 1}, {4, 30}});
  EXPECT_DOUBLE_EQ(cost_of(run).local, 3 * 2 + 3 * 1);
  EXPECT_DOUBLE_EQ(cost_of(run).exchange, 0);
}

TEST(UsualSeconds, OfARunWithoutExchangesAreThoseOfItsSummary) {
  EXPECT_DOUBLE_EQ(cost_of(run_with(0, 50)).local, 50);
  EXPECT_DOUBLE_EQ(cost_of(run_with(0, 50)).exchange, 1 + 2 + 3);
}

TEST(UsualSeconds, AreThoseOfTheTimingWhereThereIsOne) {
  auto run = run_with(0, 50);
  run.exchanges = exchanges({{9, 20}, {9, 20}, {7, 20}, {4, 20}, {3, 20}});
  run.timed = exchanges({{9, 2}, {9, 2}, {9, 8}, {4, 1}});
  for (auto& exchange : run.timed) exchange.seconds.project = 0.5;
  // 7 MACs lie at 3/5 of the way from 4 to 9; 3 are as fast as 4
  EXPECT_DOUBLE_EQ(cost_of(run).local, 2 + 2 + 1.6 + 1 + 1);
  EXPECT_DOUBLE_EQ(cost_of(run).exchange, 5 * 0.5);
}

TEST(Bandwidth, MessagesAreThoseCountedIfTheRunCountedThem) {
  auto run = run_with(0, 0);
  run.summary->messages.between_nodes = 40;
  EXPECT_DOUBLE_EQ(cost_of(run).messages, 40 * 2 * 3);
  run.summary->messages.direct = 30;  // from everyone to everyone, all at once
  EXPECT_DOUBLE_EQ(cost_of(run).messages, 10 * 2 * 3 + 30);
  run.summary->messages.direct.reset();
}

// 3 ranks on each of 4 nodes: a message among all ranks goes round 12.
TEST(Bandwidth, MessagesAmongAllRanksGoRoundAllOfThem) {
  auto run = run_with(0, 0);
  run.options["ranks-per-node"] = "3";
  run.summary->messages.among_all = 10;
  EXPECT_DOUBLE_EQ(cost_of(run).messages, 10 * 2 * 11);
  run.summary->messages.flat_direct = 4;  // rows of a model to their owners
  EXPECT_DOUBLE_EQ(cost_of(run).messages, 6 * 2 * 11 + 4);
  run.summary->messages.flat_direct.reset();  // as in older records
  run.options["strategy"] = "hsadmm_flat";
  EXPECT_DOUBLE_EQ(cost_of(run).messages, 10);
}

TEST(Bandwidth, DdpWaitsForTheSlowerOfLinkAndProcessor) {
  auto run = run_with(125000000, 50, "ddp");  // 1000 Mbit, and 60 messages of 0.1 ms
  run.summary->overlap = 1;
  const Cost cost = cost_of(run);
  EXPECT_NEAR(seconds_at(cost, 1000), 6 + 50, 1e-9);
  EXPECT_NEAR(seconds_at(cost, 10), 6 + 100 + 0.006, 1e-9);
}

TEST(Crossings, AreWhereTwoLinesMeet) {
  const Cost few{.local = 20, .bytes = 100 * kMbit}, many{.local = 10, .bytes = 1100 * kMbit};
  // 20 + 100 / B = 10 + 1100 / B at B = 100
  EXPECT_THAT(crossings(few, many, {1, 1e6}), ElementsAre(DoubleNear(100, 1e-6)));
  EXPECT_THAT(crossings(few, many, {200, 1e6}), IsEmpty());
}

TEST(Crossings, ParallelOrEqualLinesHaveNone) {
  const Cost a{.local = 20, .bytes = 100}, b{.local = 10, .bytes = 100};
  EXPECT_THAT(crossings(a, b, {1, 1e6}), IsEmpty());
  EXPECT_THAT(crossings(a, a, {1, 1e6}), IsEmpty());
}

TEST(Crossings, ABentLineMayBeCrossedTwice) {
  // max(100, 1000 / B) against 60 + 600 / B: 1000 / B = 60 + 600 / B at 20/3, 100 = 60 + 600 / B at 15
  const Cost bent{.local = 100, .bytes = 1000 * kMbit, .overlap = 1};
  const Cost straight{.local = 60, .bytes = 600 * kMbit};
  EXPECT_THAT(crossings(bent, straight, {1, 1e6}), ElementsAre(DoubleNear(20.0 / 3, 1e-6), DoubleNear(15, 1e-6)));
}

/// Of runs of 100 and 400 images: 2 and 3 s of local steps in every 100.
TEST(BandwidthFigures, CompareRunsOfDifferentLengthByTheImage) {
  std::vector<report::Run> runs{run_with(0, 2 - 0.06), run_with(0, 12 - 0.06, "ddp")};
  for (size_t i : {0, 1}) {
    runs[i].summary->seconds.intra = runs[i].summary->seconds.project = runs[i].summary->seconds.dual = 0.02;
    runs[i].summary->samples = i == 0 ? 100 : 400;
    runs[i].summary->inter_node_bytes = 1;
    runs[i].summary->messages.between_nodes = runs[i].summary->messages.direct.emplace(1);
  }
  const auto figures = bandwidth_figures(tasks_of(runs).at(0));
  const auto seconds = [&](size_t row) { return figures.at(0).tables.at(0).rows.at(row).at(2).number.value(); };
  EXPECT_NEAR(seconds(0), 0.02, 1e-5);
  EXPECT_NEAR(seconds(usual_bandwidths().size()), 0.03, 1e-5);
  EXPECT_EQ(figures.at(2).tables.at(0).rows.at(1).at(1).word, "everywhere");
}

TEST(ParetoFront, HoldsWhatNothingBeats) {
  const std::vector<Point> points{{5, 0.9, {}}, {1, 0.5, {}}, {2, 0.4, {}}, {3, 0.9, {}}, {4, 0.95, {}}, {3, 0.8, {}}};
  EXPECT_THAT(pareto_front(points), ElementsAre(1, 3, 4));
  EXPECT_THAT(pareto_front({}), IsEmpty());
}

}  // namespace
}  // namespace prunex::report
