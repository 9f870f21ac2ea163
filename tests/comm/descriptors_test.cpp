// The limit of open files.
#include "prunex/comm/connect.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "prunex/comm/watch/signals.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

/// The process's limit, put back in the end.
class Limit {
 public:
  explicit Limit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low = {soft, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~Limit() { setrlimit(RLIMIT_NOFILE, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

  static rlim_t now() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }

 private:
  rlimit before_;
};

TEST(Descriptors, AreReservedByRaisingTheLimit) {
  const Limit limit(20);
  reserve_descriptors(100);
  EXPECT_GE(Limit::now(), 100);
  EXPECT_LT(Limit::now(), 1000);
}

TEST(Descriptors, OfALimitThatIsHighEnoughStayAsTheyAre) {
  const Limit limit(500);
  reserve_descriptors(100);
  EXPECT_EQ(Limit::now(), 500);
}

TEST(Descriptors, ThatCannotBeHadAreSaidToBeMissing) {
  const auto fail = [] {
    const rlimit low = {50, 50};
    setrlimit(RLIMIT_NOFILE, &low);
    std::fputs(tests::message([] { reserve_descriptors(100); }).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0), "open files: ulimit -n permits 50, wanted 1[0-9][0-9] for");
}

// Threads that wait for a descriptor that is none would wait for ever.
TEST(Descriptors, ThatCannotBeOpenedAreAnError) {
  const Limit limit(3);
  const auto said = tests::message([] { const SignalThread thread(SIGUSR2, [] {}); });
  EXPECT_EQ(said, "[comm] cannot open a descriptor: Too many open files");
}

TEST(Descriptors, AreCountedForEveryGroupOfARank) {
  EXPECT_GT(descriptors_of_rank(Layout::even(8, 8)), 3 * 63 + 7 + 2 * 7);
}

}  // namespace
}  // namespace prunex::comm
