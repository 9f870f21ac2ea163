// Packing on the device, of every kind of group: the CPU's buffers, without the host.
#include "prunex/sparsity/compaction.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/sparsity/projection.h"
#include "tests/device/pretend_device.h"
#include "tests/device/same_bits.h"
#include "tests/groups.h"

namespace prunex::sparsity {
namespace {

TensorDict moved(const TensorDict& tensors, const c10::Device& device) {
  TensorDict there;
  for (const auto& item : tensors) there.insert(item.key(), item.value().to(device));
  return there;
}

void expect_same_packing(const TensorDict& here, const Supports& supports) {
  const auto device = tests::pretend_device();
  TensorDict there = moved(here, device), back_here = moved(here, at::kCPU), back_there = moved(here, device);
  const Compaction plan(here, supports), plan_there(there, supports);
  at::Tensor packed = at::empty({plan.numel()}, here.front().value().options());
  at::Tensor packed_there = at::empty({plan.numel()}, packed.options().device(device));
  plan.pack(here, packed);
  plan.unpack(packed, back_here);
  const tests::HostTraffic before = tests::host_traffic();
  plan_there.pack(there, packed_there);
  plan_there.unpack(packed_there, back_there);
  const tests::HostTraffic traffic = tests::host_traffic() - before;
  EXPECT_EQ(traffic.reads + traffic.uploads, 0);
  EXPECT_TRUE(packed_there.cpu().equal(packed));
  tests::expect_same_bits(back_here, back_there);
}

TEST(CompactionOnDevice, PacksAndUnpacksAsTheCpuDoes) {
  const auto tensors = tests::random_tensors(at::kFloat, at::MemoryFormat::ChannelsLast);
  const auto groups = tests::groups_of_every_kind();
  const Masks masks = tests::mixed_masks(groups);
  for (const auto& group : groups) {
    SCOPED_TRACE(group.name);
    expect_same_packing(tensors, supports_of({group}, masks, tensors));
  }
  expect_same_packing(tensors, supports_of(groups, masks, tensors));
  expect_same_packing(tensors, Supports());
}

TEST(CompactionOnDevice, PacksATensorOfOneRowByItsColumns) {
  TensorDict tensors;
  tensors.insert("one", at::arange(6, at::kFloat).view({1, 6}));
  Supports supports;
  supports.insert("one", {.columns = at::arange(6).remainder(2).eq(0)});
  expect_same_packing(tensors, supports);
}

TEST(CompactionOnDevice, PacksNothingOfWhatIsDead) {
  TensorDict tensors;
  tensors.insert("dead", at::ones({3, 2}));
  Supports supports;
  supports.insert("dead", {.rows = at::zeros({3}, at::kBool)});
  expect_same_packing(tensors, supports);
}

}  // namespace
}  // namespace prunex::sparsity
