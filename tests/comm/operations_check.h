// What every group must do, whatever carries its bytes.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

/// Every operation of a group of three against closed forms; rank r has r + 1 everywhere, or entry i + 10 r.
inline void check_operations(Communicator& group) {
  const int64_t n = group.size(), me = group.rank();
  const std::vector<Range> parts = {{0, 2}, {2, 2}, {2, 7}};
  const Range mine = parts[static_cast<size_t>(me)];

  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kByte}) {
    auto sum = at::full({3, 5}, me + 1, type);
    group.all_reduce(sum);
    EXPECT_TRUE(sum.eq(n * (n + 1) / 2).all().item<bool>());
  }
  auto largest = at::arange(7).eq(me).to(at::kByte);
  group.all_reduce(largest, Reduce::kMax);
  EXPECT_TRUE(largest.equal(at::arange(7).lt(n).to(at::kByte)));

  auto told = at::full({6}, me, at::kHalf);
  group.broadcast(told, 1);
  EXPECT_TRUE(told.eq(1).all().item<bool>());

  auto scattered = at::arange(7, at::kDouble) + 10 * me;
  const auto before = scattered.clone(), total = at::arange(7, at::kDouble) * n + 10 * (n * (n - 1) / 2);
  group.reduce_scatter(scattered, parts);
  auto wanted = before.clone();
  wanted.slice(0, mine.begin, mine.end).copy_(total.slice(0, mine.begin, mine.end));
  EXPECT_TRUE(scattered.equal(wanted));
  group.all_gather_parts(scattered, parts);
  EXPECT_TRUE(scattered.equal(total));

  auto gathered = at::empty({n, 4}, at::kLong);
  group.all_gather(gathered, at::full({4}, me, at::kLong));
  EXPECT_TRUE(gathered.equal(at::arange(n).unsqueeze(1).expand({n, 4})));

  const auto input = at::arange(7, at::kFloat) + 10 * me;
  auto received = at::zeros({n, mine.size()}, at::kFloat);
  group.all_to_all(received, input, parts);
  const auto rows = at::arange(n, at::kFloat).mul(10).unsqueeze(1);
  EXPECT_TRUE(received.equal(rows + at::arange(mine.begin, mine.end, at::kFloat)));
  group.barrier();
}

}  // namespace prunex::comm
