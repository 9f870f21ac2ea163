// Every wait ends when a rank is lost; reports name the rank that lags. Ranks are threads over TCP.
#include "prunex/comm/watch/watch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "prunex/comm/connect.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::StrEq;
using tests::message;
using tests::text_of;

void wait_for(const std::atomic<int>& counter, int value) {
  while (counter < value) std::this_thread::sleep_for(milliseconds(1));
}

TEST(AbortSwitch, RunsTheActionsOfThoseWhoStillListen) {
  AbortSwitch abort_switch;
  std::string heard;
  auto kept = abort_switch.listen([&](const std::string& reason) { heard += "kept " + reason; });
  {
    const auto gone = abort_switch.listen([&](const std::string&) { heard += "gone"; });
  }
  const auto moved = std::move(kept);
  EXPECT_EQ(abort_switch.reason(), "");
  abort_switch.abort("fire");
  abort_switch.abort("flood");
  EXPECT_EQ(heard, "kept fire");
  EXPECT_EQ(abort_switch.reason(std::chrono::hours(1)), "fire");
  const auto late = abort_switch.listen([&](const std::string& reason) { heard += ", late " + reason; });
  EXPECT_EQ(heard, "kept fire, late fire");
}

TEST(Watch, ALostRankEndsTheWaitsOfAllGroups) {
  std::vector<std::string> seen(4);
  run_ranks(2, 2,
            [&](Hierarchy& h) {
              auto x = at::ones({1000});
              if (h.layout.rank > 1) return;  // they never come, but stay connected until all are done
              std::thread judge([&] {
                std::this_thread::sleep_for(milliseconds(100));
                h.watch->abort_switch()->abort("lost rank 3 (node 1): silent for 1.5 s");
              });
              seen[h.layout.rank] = message([&] { h.rail->all_reduce(x); });
              judge.join();
              EXPECT_THAT(message([&] { h.world->barrier(); }), HasSubstr("barrier in world: lost rank 3 (node 1)"));
            },
            {.heartbeat_timeout = milliseconds(0)});
  EXPECT_THAT(seen[0], StrEq("[comm] rank 0: all_reduce in rail 0: lost rank 3 (node 1): silent for 1.5 s"));
  EXPECT_THAT(seen[1], StrEq("[comm] rank 1: all_reduce in rail 1: lost rank 3 (node 1): silent for 1.5 s"));
}

TEST(Watch, ARankThatLeavesEarlyIsNamedToThoseWhoWaitForIt) {
  std::string seen;
  run_ranks(2, 2,
            [&](Hierarchy& h) {
              h.world->barrier();
              if (h.layout.rank == 3) h.watch.reset();  // says goodbye, but keeps its connections
              if (h.layout.rank == 1) seen = message([&] { h.rail->barrier(); });
            },
            {.heartbeat_timeout = seconds(5)});
  EXPECT_THAT(seen, StrEq("[comm] rank 1: barrier in rail 1: lost rank 3 (node 1): it ended before barrier #1"));
}

TEST(Watch, LeavingAfterTheLastOperationIsInOrder) {
  for (int i = 0; i < 20; ++i) {
    run_ranks(2, 2,
              [&](Hierarchy& h) {
                auto x = at::ones({1000});
                h.world->broadcast(x, i % 4);
                h.world->barrier();
                h.watch.reset();
              },
              {.heartbeat_timeout = seconds(5)});
  }
}

TEST(Watch, ATimeoutMakesAllRanksReportAndNamesTheOneThatLags) {
  const tests::Scratch scratch;
  std::atomic<int> reported{0};
  ::testing::internal::CaptureStderr();
  run_ranks(2, 2,
            [&](Hierarchy& h) {
              h.watch->write_reports_to(scratch.path());
              h.world->barrier();
              // rank 1 waits for rank 3, rank 3 for rank 2, which is busy
              const auto own = scratch / ("hang-rank-" + std::to_string(h.layout.rank) + ".txt");
              if (h.layout.rank == 1) {
                EXPECT_THAT(message([&] { h.rail->barrier(); }), HasSubstr("no answer within 1 s"));
              }
              if (h.layout.rank == 3) message([&] { h.node->barrier(); });
              for (int i = 0; i < 6000 && text_of(own).empty(); ++i) std::this_thread::sleep_for(milliseconds(5));
              ++reported;
              wait_for(reported, 4);
            },
            {.timeout = seconds(1), .heartbeat_timeout = seconds(5), .reports = true});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("prunex: rank 2 \\(node 1\\) lags: it has not entered barrier #1 of node 1 "
                            "\\(others wait [0-9]+ s\\)\n"));
  EXPECT_THAT(text_of(scratch / "hang-rank-1.txt"),
              ContainsRegex("barrier #1 of rail 1, 0 bytes: failed, [0-9]+\\.[0-9]+ s\n"));
  EXPECT_THAT(text_of(scratch / "hang-rank-2.txt"), Not(HasSubstr("node 1, ")));
  EXPECT_THAT(text_of(scratch / "hang-rank-2.txt"),
              StartsWith("last 64 operations of rank 2 (node 1), oldest first\n"));
}

/// Before main: other tests of this program leave threads behind, LibTorch's, that must not take the signal.
const bool kBlocked = (block_signal(SIGUSR1), true);

TEST(Watch, ASignalMakesAllRanksReport) {
  ASSERT_TRUE(kBlocked);
  const tests::Scratch scratch;
  const auto report_of = [&](int rank) { return text_of(scratch / ("hang-rank-" + std::to_string(rank) + ".txt")); };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto all_have_told = [&] {
    return has(report_of(1), "barrier #3 of world, 0 bytes: waiting, ") &&
           has(report_of(2), "barrier #3 of world, 0 bytes: waiting, ") &&
           has(text_of("/proc/self/fd/2"), "barrier #3 of world (others wait");
  };
  ::testing::internal::CaptureStderr();
  run_ranks(1, 3,
            [&](Hierarchy& h) {
              h.watch->write_reports_to(scratch.path());
              h.world->barrier();
              // Asked before the others' pings have told of their barrier, it knows of no rank that waits in it.
              for (int i = 0; h.layout.rank == 0 && i < 2000 && !all_have_told(); ++i) {
                kill(getpid(), SIGUSR1);
                std::this_thread::sleep_for(milliseconds(10));
              }
              EXPECT_TRUE(h.layout.rank != 0 || all_have_told());
              h.world->barrier();
            },
            {.heartbeat_timeout = seconds(5), .report_signal = SIGUSR1});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("(prunex: .*\n)?prunex: rank 0 \\(node 0\\) lags: it has not entered barrier #3 of world "
                           "\\(others wait [0-9]+ s\\)\n"));
  EXPECT_THAT(report_of(0), StartsWith("last 64 operations of rank 0 (node 0), oldest first\n"));
}

TEST(Watch, ReportsGoToStandardErrorUntilAFolderIsKnown) {
  Watch watch(Layout::even(2, 2, 3), {});
  { const Journal::Operation entry(watch.journal().get(), "world", "barrier", 0); }
  ::testing::internal::CaptureStderr();
  watch.request_report();
  watch.request_report();  // at once: the same request
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, StartsWith("rank 3: last 64 operations of rank 3 (node 1), oldest first\nrank 3: "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

}  // namespace
}  // namespace prunex::comm
