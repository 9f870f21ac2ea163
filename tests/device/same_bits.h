// What the CPU and the device computed, side by side.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/tensors.h"

namespace prunex::tests {

/// The same tensors with the same bits, wherever they are.
inline void expect_same_bits(const TensorDict& here, const TensorDict& there) {
  EXPECT_EQ(here.keys(), there.keys());
  for (const auto& item : here) {
    const at::Tensor* other = there.find(item.key());
    if (other == nullptr) continue;
    const at::Tensor a = item.value().detach().cpu(), b = other->detach().cpu();
    ASSERT_EQ(a.sizes(), b.sizes()) << item.key();
    EXPECT_TRUE(a.equal(b)) << item.key() << ": they differ by as much as "
                            << (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  }
}

/// The same losses, weights and momentum of two ranks that train.
template <class Rank>
void expect_same_ranks(Rank& here, Rank& there) {
  EXPECT_EQ(here.losses(), there.losses());
  expect_same_bits(here.replica().weights.params, there.replica().weights.params);
  expect_same_bits(here.replica().weights.buffers, there.replica().weights.buffers);
  expect_same_bits(here.replica().optimizer["momentum"], there.replica().optimizer["momentum"]);
}

}  // namespace prunex::tests
