// The pretend device itself: that its memory is out of the host's reach, and that its numbers are the CPU's.
#include "tests/device/pretend_device.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "tests/texts.h"

namespace prunex::tests {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

float first_entry_by_pointer(const at::Tensor& tensor) {
  return *tensor.const_data_ptr<float>();
}

TEST(PretendDeviceDeathTest, ARawReadByTheHostDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto there = at::ones({4}).to(pretend_device());
  EXPECT_EQ(first_entry_by_pointer(there.cpu()), 1);
  EXPECT_DEATH(EXPECT_EQ(first_entry_by_pointer(there), 1), "");
}

TEST(PretendDevice, RefusesTensorsOfTwoPlacesInOneOperation) {
  const auto here = at::ones({4}), there = here.to(pretend_device());
  const auto refusal = AnyOf(HasSubstr("same device"), HasSubstr("beside others on the device"));
  EXPECT_THAT(message([&] { there + here; }), refusal);
  EXPECT_THAT(message([&] { there.index_select(0, at::zeros({1}, at::kLong)); }), refusal);
  EXPECT_TRUE((there + at::scalar_tensor(2)).cpu().equal(here + 2)) << "numbers go along with kernels";
}

TEST(PretendDevice, CountsWhatTheHostWaitsFor) {
  const auto there = at::arange(6, at::kFloat).to(pretend_device());
  const auto reads_of = [](const auto& call) {
    const HostTraffic before = host_traffic();
    call();
    return (host_traffic() - before).reads;
  };
  EXPECT_EQ(reads_of([&] { there.mul(2).sum(); }), 0);
  EXPECT_EQ(reads_of([&] { there.clone().narrow(0, 1, 3).view({3, 1}).copy_(there.narrow(0, 0, 3).view({3, 1})); }), 0);
  EXPECT_EQ(reads_of([&] { there.sum().item(); }), 1);
  EXPECT_EQ(reads_of([&] { there.cpu(); }), 1);
  EXPECT_EQ(reads_of([&] { there.equal(there); }), 1);
  EXPECT_EQ(reads_of([&] { there.nonzero(); }), 1);
  EXPECT_EQ(reads_of([&] {
              const Uncounted transport;
              there.cpu();
            }),
            0);
  const HostTraffic before = host_traffic();
  at::ones({3}).to(pretend_device());
  EXPECT_EQ((host_traffic() - before).uploads, 1);
  EXPECT_TRUE(at::ones({3}).pin_memory().to(pretend_device(), at::kFloat, true).cpu().equal(at::ones({3})));
  EXPECT_EQ((host_traffic() - before).uploads, 1) << "page-locked memory can be left behind";
}

TEST(PretendDevice, NewMemoryIsFullOfNaNsAndFreedMemoryServesAgain) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(pretend_device());
  EXPECT_TRUE(at::empty({5}, options).isnan().all().item<bool>());
  at::empty({1000}, options);
  const HostTraffic before = host_traffic();
  at::empty({1000}, options);
  EXPECT_EQ((host_traffic() - before).grown, 0);
}

TEST(PretendDevice, GrowsATensorAndKeepsWhatItHeld) {
  const auto there = at::arange(3, at::kFloat).to(pretend_device());
  there.resize_({1000});
  EXPECT_TRUE(there.narrow(0, 0, 3).cpu().equal(at::arange(3, at::kFloat)));
}

/// A loss with what networks are made of, its running statistics and its gradients, by name.
std::vector<at::Tensor> small_step(const c10::Device& device) {
  auto generator = at::detail::createCPUGenerator(3);
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape, generator).to(device); };
  const auto x = random({4, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  auto weight = random({6, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  auto scale = random({6}).set_requires_grad(true), bias = random({6}).set_requires_grad(true);
  auto head = random({5, 6}).set_requires_grad(true);
  const auto mean = at::zeros({6}, x.options()), variance = at::ones({6}, x.options());
  auto y = at::conv2d(x, weight, {}, 1, 1);
  y = at::batch_norm(y, scale, bias, mean, variance, true, 0.1, 1e-5, false).relu();
  y = at::max_pool2d(y, 2).mean({2, 3});
  const auto labels = at::arange(4, at::kLong).to(device);
  const auto loss = at::cross_entropy_loss(at::linear(y, head), labels);
  loss.backward();
  return {loss.detach(), mean, variance, weight.grad(), scale.grad(), bias.grad(), head.grad()};
}

TEST(PretendDevice, GivesTheCpusLossStatisticsAndGradientsBitForBit) {
  at::set_num_threads(1);
  const auto here = small_step(at::kCPU), there = small_step(pretend_device());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(there[i].device(), pretend_device());
    EXPECT_TRUE(there[i].cpu().equal(here[i])) << i;
    EXPECT_EQ(there[i].strides(), here[i].strides()) << i;
  }
}

}  // namespace
}  // namespace prunex::tests
