// Who goes on after a loss: the rules of docs/elastic.md.
#include "prunex/comm/elastic/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace prunex::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = Verdict::Kind;

const Roster kThree{0, {0, 1, 2}};

Report at_work(int node, const Roster& formed, int64_t committed = 4) {
  return {.node = node, .formed = formed, .seen = formed.epoch, .committed = committed};
}

TEST(Agreement, WaitsForWhoMayBeThere) {
  const auto verdict = decide({at_work(1, kThree)}, {.dead = {0}}, {1, 1, 1}, 0);
  EXPECT_EQ(verdict.kind, Kind::kWait);
  EXPECT_THAT(verdict.waiting, ElementsAre(2));
}

TEST(Agreement, DeadNodesHaveNoSay) {
  const auto verdict = decide({at_work(2, kThree)}, {.dead = {0, 1}}, {1, 1, 1}, 0);
  EXPECT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.roster, (Roster{1, {2}}));
  EXPECT_EQ(verdict.committed, 4);
}

TEST(Agreement, SilentNodesMayGoOn) {
  const auto alone = decide({at_work(2, kThree)}, {.silent = {0, 1}}, {1, 1, 1}, 0);
  EXPECT_EQ(alone.kind, Kind::kNoQuorum);
  EXPECT_THAT(alone.why, HasSubstr("1 of 3 nodes are here"));
  EXPECT_EQ(decide({at_work(1, kThree), at_work(2, kThree)}, {.silent = {0}}, {1, 1, 1}, 0).kind, Kind::kGo);
}

TEST(Agreement, OfTwoHalvesTheOneWithTheLowestNodeGoesOn) {
  const Roster two{0, {3, 5}};
  const RanksOf one_each(6, 1);
  EXPECT_EQ(decide({at_work(3, two)}, {.silent = {5}}, one_each, 0).kind, Kind::kGo);
  EXPECT_EQ(decide({at_work(5, two)}, {.silent = {3}}, one_each, 0).kind, Kind::kNoQuorum);
  EXPECT_EQ(decide({at_work(5, two)}, {.silent = {3}}, one_each, 1).kind, Kind::kGo) << "as the user said";
  const Roster four{0, {0, 1, 2, 3}};
  EXPECT_EQ(decide({at_work(2, four), at_work(3, four)}, {.silent = {0, 1}}, one_each, 1).kind, Kind::kNoQuorum);
  EXPECT_EQ(decide({at_work(0, four), at_work(3, four)}, {.silent = {1, 2}}, one_each, 0).kind, Kind::kGo);
}

TEST(Agreement, FewerThanWantedEnd) {
  const auto verdict = decide({at_work(1, kThree)}, {.dead = {0, 2}}, {1, 1, 1}, 2);
  EXPECT_EQ(verdict.kind, Kind::kTooFew);
  EXPECT_EQ(verdict.why, "1 of 3 nodes are left, fewer than `min_nodes` 2");
}

TEST(Agreement, ANewcomerAloneHasNothingToGoOnFrom) {
  const Roster two{0, {0, 1}};
  const Report newcomer{.node = 2, .formed = two, .agreed = {{1, {0, 1, 2}}}, .seen = 1, .committed = 4};
  const auto verdict = decide({newcomer}, {.dead = {0, 1}}, {1, 1, 1}, 0);
  EXPECT_EQ(verdict.kind, Kind::kTooFew);
  EXPECT_THAT(verdict.why, HasSubstr("nobody is left"));
}

TEST(Agreement, ANodeIsHereWithAllOfItsRanks) {
  Report second = at_work(0, {0, {0, 1}});
  second.local_rank = 1;
  const std::vector<Report> half{at_work(0, {0, {0, 1}})}, whole{half[0], second};
  EXPECT_THAT(decide(half, {.dead = {1}}, {2, 2}, 0).waiting, ElementsAre(0));
  EXPECT_EQ(decide(whole, {.dead = {1}}, {2, 2}, 0).kind, Kind::kGo);
}

TEST(Agreement, WhatOneHasHeardIsTrueForAll) {
  Report heard = at_work(0, kThree, 5), entered = at_work(1, kThree, 4);
  entered.entered = true;
  EXPECT_EQ(decide({heard, entered}, {.dead = {2}}, {1, 1, 1}, 0).committed, 5);
  const Report behind = at_work(1, kThree, 4);
  EXPECT_THROW(decide({heard, behind}, {.dead = {2}}, {1, 1, 1}, 0), std::runtime_error);
}

TEST(Agreement, WhatAllHaveEnteredIsTaken) {
  Report a = at_work(0, kThree), b = at_work(1, kThree);
  a.entered = true;
  EXPECT_EQ(decide({a, b}, {.dead = {2}}, {1, 1, 1}, 0).committed, 4);
  b.entered = true;
  EXPECT_EQ(decide({a, b}, {.dead = {2}}, {1, 1, 1}, 0).committed, 5);
}

TEST(Agreement, AnUncertainRosterWantsBothQuorums) {
  Report uncertain = at_work(2, kThree);
  uncertain.agreed = {{1, {0, 2}}};
  // 0 may have heard that all of epoch 1 met, and have gone on.
  EXPECT_EQ(decide({uncertain, at_work(1, kThree)}, {.silent = {0}}, {1, 1, 1}, 0).kind, Kind::kNoQuorum);
  EXPECT_EQ(decide({uncertain, at_work(1, kThree)}, {.dead = {0}}, {1, 1, 1}, 0).kind, Kind::kGo);
}

TEST(Agreement, ReportsAreReadBackAndNothingElseIs) {
  Report report = at_work(3, {7, {1, 3, 9}}, 12);
  report.local_rank = 1;
  report.entered = true;
  report.agreed = {{8, {1, 3}}, {9, {3}}};
  const Report back = Report::from_text(report.text());
  EXPECT_EQ(back.text(), report.text());
  EXPECT_EQ(back.agreed, report.agreed);
  for (const char* text : {"", "1", "1 0 0 0 0 0 3 1 2", "1 0 0 0 0 0 99999999 1", "a b", "-1 0 0 0 0 0 1 0 0",
                           "1 0 0 0 0 0 2 5 3 0", "1 0 0 0 0 0 1 1 99999"}) {
    EXPECT_THROW(Report::from_text(text), std::runtime_error) << text;
  }
}

}  // namespace
}  // namespace prunex::comm
