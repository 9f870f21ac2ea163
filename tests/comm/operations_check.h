// What every group must do, whatever carries its bytes.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "prunex/comm/communicator.h"

namespace prunex::comm {

inline void expect_equal(const at::Tensor& got, const at::Tensor& wanted) {
  EXPECT_TRUE(got.cpu().equal(wanted)) << got.cpu() << "\nwanted\n" << wanted;
}

/// Of seven entries two are the first rank's, and five the last one's.
inline std::vector<Range> uneven_parts(int64_t ranks) {
  std::vector<Range> parts(static_cast<size_t>(ranks), Range{2, 2});
  parts.front().begin = 0;
  parts.back().end = 7;
  return parts;
}

/// Every operation of a group of two or more, on tensors of this device, against closed forms; rank r has r + 1
/// everywhere, or entry i + 10 r.
inline void check_operations(Communicator& group, const c10::Device& device = at::kCPU) {
  const int64_t n = group.size(), me = group.rank();
  const std::vector<Range> parts = uneven_parts(n);
  const Range mine = parts[static_cast<size_t>(me)];

  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kByte}) {
    auto sum = at::full({3, 5}, me + 1, type).to(device);
    group.all_reduce(sum);
    expect_equal(sum, at::full({3, 5}, n * (n + 1) / 2, type));
  }
  auto largest = at::arange(7).eq(me).to(at::kByte).to(device);
  group.all_reduce(largest, Reduce::kMax);
  expect_equal(largest, at::arange(7).lt(n).to(at::kByte));

  auto told = at::full({6}, me, at::kHalf).to(device);
  group.broadcast(told, 1);
  expect_equal(told, at::ones({6}, at::kHalf));

  const auto before = at::arange(7, at::kDouble) + 10 * me,
             total = at::arange(7, at::kDouble) * n + 10 * (n * (n - 1) / 2);
  auto scattered = before.clone().to(device), wanted = before.clone();
  group.reduce_scatter(scattered, parts);
  wanted.slice(0, mine.begin, mine.end).copy_(total.slice(0, mine.begin, mine.end));
  expect_equal(scattered, wanted);
  group.all_gather_parts(scattered, parts);
  expect_equal(scattered, total);

  auto gathered = at::empty({n, 4}, at::kLong).to(device);
  group.all_gather(gathered, at::full({4}, me, at::kLong).to(device));
  expect_equal(gathered, at::arange(n).unsqueeze(1).expand({n, 4}));

  const auto input = (at::arange(7, at::kFloat) + 10 * me).to(device);
  auto received = at::zeros({n, mine.size()}, at::kFloat).to(device);
  group.all_to_all(received, input, parts);
  const auto rows = at::arange(n, at::kFloat).mul(10).unsqueeze(1);
  expect_equal(received, rows + at::arange(mine.begin, mine.end, at::kFloat));
  group.barrier();
}

}  // namespace prunex::comm
