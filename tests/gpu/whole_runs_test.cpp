// Whole runs on a real GPU, which several ranks share: every strategy, payload, cut and penalty gets through, and ends
// about where the CPU does. tests/device holds the numbers bit for bit; a GPU adds up in an order of its own.
#include <gtest/gtest.h>

#include "prunex/comm/connect.h"
#include "tests/device/small_runs.h"
#include "tests/texts.h"

namespace prunex::tests {
namespace {

/// Of the loss: masks that differ in a unit make more of a difference than sums do.
constexpr double kShare = 0.2;

class RunOnGpu : public testing::TestWithParam<SmallRun> {};

TEST_P(RunOnGpu, EndsWhereTheCpuDoes) {
  const auto problem = message(comm::check_gpu);
  if (problem != "no exception") GTEST_SKIP() << "no GPU here: " << problem;
  const Scratch folder;
  const auto here = run_on(c10::kCPU, options_of(GetParam(), folder, "here"));
  const auto there = run_on(c10::kCUDA, options_of(GetParam(), folder, "there"));
  EXPECT_EQ(there.gpus.size(), 1U);
  EXPECT_TRUE(here.gpus.empty());
  EXPECT_EQ(there.exchanges, here.exchanges);
  EXPECT_EQ(there.frozen, here.frozen);
  EXPECT_NEAR(there.loss, here.loss, kShare * here.loss);
}

INSTANTIATE_TEST_SUITE_P(All, RunOnGpu, testing::ValuesIn(small_runs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace prunex::tests
