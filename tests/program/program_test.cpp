#include "prunex/program/program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/program/graphs.h"

namespace prunex::program {
namespace {

TEST(Program, RunsAGraphLikeTheSameCallsByHand) {
  at::manual_seed(1);
  auto weights = small_weights();
  const auto x = at::randn({3, 2, 5, 5});
  const Program program(small_graph());
  for (const auto mode : {Mode::kTrain, Mode::kEval}) {
    auto copy = small_weights_like(weights);
    const auto expected = small_by_hand(x, copy, mode == Mode::kTrain);
    const auto got = program.run({x}, weights, mode);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(at::equal(got[0], expected));
    for (const auto& buffer : copy.buffers) EXPECT_TRUE(at::equal(weights.buffers[buffer.key()], buffer.value()));
  }
}

}  // namespace
}  // namespace prunex::program
