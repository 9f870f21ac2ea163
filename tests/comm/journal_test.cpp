// The record of operations, and who lags by it.
#include "prunex/comm/watch/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace prunex::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void fail_in(Journal& journal, const std::string& group, const char* operation) {
  try {
    const Journal::Operation entry(&journal, group, operation, 8);
    throw std::runtime_error("cut off");
  } catch (const std::runtime_error&) {
  }
}

TEST(Journal, NumbersOperationsPerGroup) {
  Journal journal;
  journal.add_group("world");
  for (int i = 0; i < 2; ++i) Journal::Operation(&journal, "rail 1", "all_reduce", 100);
  const Journal::Operation entry(&journal, "node 0", "broadcast", 7);
  std::vector<std::string> seen;
  for (const auto& place : journal.progress()) {
    seen.push_back(place.group + " " + std::to_string(place.entered) + " " + std::to_string(place.done));
  }
  EXPECT_THAT(seen, ElementsAre("world 0 0", "rail 1 2 2", "node 0 1 0"));
}

TEST(Journal, ShowsWhatIsDoneWhatFailedAndWhatWaits) {
  Journal journal;
  { const Journal::Operation entry(&journal, "world", "barrier", 0); }
  fail_in(journal, "rail 1", "all_reduce");
  const Journal::Operation entry(&journal, "world", "broadcast", 400);
  const std::string time = "[0-9:.]+ UTC  ";
  EXPECT_THAT(journal.text(), MatchesRegex(time + "barrier #1 of world, 0 bytes: done, [0-9.]+ s\n" +        //
                                           time + "all_reduce #1 of rail 1, 8 bytes: failed, [0-9.]+ s\n" +  //
                                           time + "broadcast #2 of world, 400 bytes: waiting, [0-9.]+ s\n"));
}

TEST(Journal, KeepsTheLatestOperations) {
  Journal journal;
  for (int i = 0; i < 200; ++i) Journal::Operation(&journal, "world", "barrier", 0);
  const auto entries = journal.entries();
  EXPECT_EQ(entries.size(), Journal::kEntries);
  EXPECT_EQ(entries.front().number, 200 - 63);
  EXPECT_EQ(entries.back().number, 200);
}

// As of an exchange that travels while steps go on in the node.
TEST(Journal, KnowsOperationsOfSeveralThreadsApart) {
  Journal journal;
  std::vector<std::string> failed;
  journal.on_failure([&](const Journal::Entry& entry) { failed.push_back(entry.group); });
  auto step = std::make_unique<Journal::Operation>(&journal, "node 0", "all_reduce", 8);
  auto exchange = std::make_unique<Journal::Operation>(&journal, "rail 0", "all_reduce", 8);
  step.reset();
  const auto is_waiting = [&](const char* group) {
    const Progress progress = journal.progress();
    return find_group(progress, group)->waiting();
  };
  EXPECT_FALSE(is_waiting("node 0"));
  EXPECT_TRUE(is_waiting("rail 0"));
  for (int i = 0; i < 200; ++i) Journal::Operation(&journal, "node 0", "all_reduce", 8);
  EXPECT_EQ(journal.entries().front().group, "rail 0");
  try {
    const auto fails = std::move(exchange);
    throw std::runtime_error("cut off");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(failed, ElementsAre("rail 0"));
}

TEST(Journal, TellsOfFailuresOnly) {
  Journal journal;
  std::vector<std::string> failed;
  journal.on_failure([&](const Journal::Entry& entry) { failed.push_back(entry.operation); });
  { const Journal::Operation entry(&journal, "world", "barrier", 0); }
  fail_in(journal, "world", "broadcast");
  EXPECT_THAT(failed, ElementsAre("broadcast"));
}

TEST(Journal, MayBeAbsent) {
  const Journal::Operation entry(nullptr, "world", "barrier", 0);
}

TEST(Progress, SurvivesItsEncoding) {
  const Progress progress = {{"rail 1", 412, 411, "all_reduce"}, {"world", 0, 0, ""}};
  const auto decoded = decode(encode(progress) + "noise\n");
  ASSERT_EQ(decoded.size(), 2U);
  EXPECT_EQ(decoded[0].group, "rail 1");
  EXPECT_EQ(decoded[0].entered, 412);
  EXPECT_EQ(decoded[0].done, 411);
  EXPECT_EQ(decoded[0].operation, "all_reduce");
  EXPECT_EQ(decoded[1].group, "world");
  EXPECT_EQ(decoded[1].operation, "");
}

// 2 nodes x 2 ranks; all have done 5 operations in their node and 3 in their rail.
std::map<int, Progress> two_by_two() {
  std::map<int, Progress> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks[rank] = {{"node " + std::to_string(rank / 2), 5, 5, "broadcast"},
                   {"rail " + std::to_string(rank % 2), 3, 3, "all_reduce"}};
  }
  return ranks;
}

TEST(Progress, TheLaggardIsTheMemberThatHasNotEntered) {
  auto ranks = two_by_two();
  ranks[1][1].entered = 4;
  const auto laggard = find_laggard(ranks, 1).value();
  EXPECT_EQ(laggard.rank, 3);
  EXPECT_EQ(laggard.wait.entered, 4);
  EXPECT_EQ(laggard.wait.group, "rail 1");
}

TEST(Progress, TheLaggardIsFoundThroughRanksThatWaitThemselves) {
  auto ranks = two_by_two();
  ranks[1][1].entered = 4;  // waits for rank 3, which waits for rank 2, which computes
  ranks[3][0].entered = 6;
  const auto laggard = find_laggard(ranks, 1).value();
  EXPECT_EQ(laggard.rank, 2);
  EXPECT_EQ(laggard.waiting_rank, 3);
  EXPECT_EQ(laggard.wait.group, "node 1");
  EXPECT_EQ(laggard.wait.operation, "broadcast");
}

TEST(Progress, TheLaggardIsFoundThroughAnOperationThatAllHaveEntered) {
  auto ranks = two_by_two();
  ranks[1][1].entered = ranks[3][1].entered = 4;
  ranks[3][0].entered = 6;  // a step of the operation: rank 3 waits in its node for rank 2
  const auto laggard = find_laggard(ranks, 1).value();
  EXPECT_EQ(laggard.rank, 2);
  EXPECT_EQ(laggard.waiting_rank, 3);
}

TEST(Progress, NobodyLagsWhenAllHaveComeOrNobodyWaitsOrAllWaitInACircle) {
  auto ranks = two_by_two();
  EXPECT_FALSE(find_laggard(ranks, 1));
  ranks[1][1].entered = ranks[3][1].entered = 4;
  EXPECT_FALSE(find_laggard(ranks, 1));
  ranks = two_by_two();
  ranks[0][0].entered = 6;  // 0 waits for 1, 1 for 3, 3 for 2, 2 for 0
  ranks[1][1].entered = 4;
  ranks[3][0].entered = 6;
  ranks[2][1].entered = 4;
  EXPECT_FALSE(find_laggard(ranks, 0));
}

TEST(Progress, RanksInDifferentOperationsOfOneNumberDisagree) {
  auto ranks = two_by_two();
  ranks[1][1].entered = ranks[3][1].entered = 4;
  EXPECT_FALSE(find_disagreement(ranks, 1));
  ranks[3][1].operation = "barrier";
  EXPECT_EQ(find_disagreement(ranks, 1), std::pair(1, 3));
}

}  // namespace
}  // namespace prunex::comm
