#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "prunex/comm/gloo/run_ranks.h"

namespace prunex::comm {
namespace {

TEST(AllReduce, SumsFloatsOverAllRanks) {
  run_ranks(1, 4, [](Hierarchy& h) {
    auto x = at::arange(1000, at::kFloat) * (h.layout.rank + 1);
    h.world->all_reduce(x);
    EXPECT_TRUE(at::equal(x, at::arange(1000, at::kFloat) * 10));  // 1 + 2 + 3 + 4
  });
}

}  // namespace
}  // namespace prunex::comm
