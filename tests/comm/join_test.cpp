// What a rank says while it waits for others at the start.
#include "prunex/comm/meet/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/texts.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using tests::message;
using tests::text_of;

/// What is written while a rank waits that announces, every quarter of its time.
std::string said_during(milliseconds time, const std::function<void(Join&)>& wait) {
  ::testing::internal::CaptureStderr();
  {
    Join join(time, true);
    wait(join);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(Join, SaysWhatItWaitsForAndUntilWhen) {
  const auto said = said_during(milliseconds(400), [](Join& join) {
    join.waits_for("missing rank 2");
    for (int i = 0; i < 6000 && text_of("/proc/self/fd/2").empty(); ++i) std::this_thread::sleep_for(milliseconds(5));
  });
  EXPECT_THAT(said, ContainsRegex("^prunex: missing rank 2; waiting for [0-9.]+ s, "
                                  "gives up after 0\\.4 s \\(the join timeout\\)\n"));
}

TEST(Join, WritesTimesAsPeopleDo) {
  EXPECT_EQ(Join(milliseconds(1'000'000)).limit(), "1000 s");
  EXPECT_EQ(Join(milliseconds(287'214)).limit(), "287 s");
  EXPECT_EQ(Join(milliseconds(250)).limit(), "0.25 s");
}

TEST(Join, IsQuietWhileItWaitsForNothing) {
  EXPECT_EQ(said_during(milliseconds(400), [](Join& join) { std::this_thread::sleep_for(join.left()); }), "");
}

/// It knows who is missing after a quarter of a second, and may say so at 0.3, 0.6 and 0.9 s.
TEST(Join, TheFirstRankThatIsThereSpeaksForAll) {
  const auto store = make_memory_store();
  const auto said_by = [&](int rank) {
    return said_during(milliseconds(1200), [&](Join& join) {
      EXPECT_THAT(message([&] {
                    exchange_cards({*store, join}, "roll", {rank, 4}, "here");
                  }),
                  HasSubstr("2 of 4 ranks joined within 1.2 s: missing ranks 0, 3 (`join_timeout`)"));
    });
  };
  store->set("roll/2", "here");
  EXPECT_THAT(said_by(1), HasSubstr("prunex: 2 of 4 ranks joined: missing ranks 0, 3; waiting for "));
  EXPECT_EQ(said_by(2), "");
}

TEST(Join, NamesAFewOfManyMissingRanks) {
  const auto store = make_memory_store();
  Join join(milliseconds(50));
  EXPECT_THAT(message([&] {
                exchange_cards({*store, join}, "roll", {0, 100}, "here");
              }),
              HasSubstr("1 of 100 ranks joined within 0.05 s: missing ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
                        "14, 15, 16 and 83 more"));
}

}  // namespace
}  // namespace prunex::comm
