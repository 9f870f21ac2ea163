// Where a run computes. The meta device, which has shapes and no memory, stands in for a GPU.
#include "prunex/train/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/models/models.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

TEST(Device, EveryStrategyIsAcceptedOnGpusWithItsNarrowestPayload) {
  for (const auto& name : strategy_names()) {
    TrainOptions options;
    options.strategy = name;
    options.ranks.device = "cuda";
    options.exchange.payload = facts_of(name).narrowest;
    EXPECT_NO_THROW(validate(options)) << name;
  }
}

TEST(Device, AModelMovesAsLeavesOfTheSameLayout) {
  program::Model model = models::make_model("resnet8", {});
  auto& first = model.weights.params.front().value();
  first = first.detach().contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const program::Model moved = on_device(model, at::kMeta);
  EXPECT_TRUE(device_of(moved.weights).is_meta());
  const auto& theta = moved.weights.params.front().value();
  EXPECT_TRUE(theta.is_leaf());
  EXPECT_TRUE(theta.requires_grad());
  EXPECT_EQ(theta.strides(), first.strides());
  for (const auto& buffer : moved.weights.buffers) {
    EXPECT_TRUE(buffer.value().is_meta());
    EXPECT_FALSE(buffer.value().requires_grad());
  }
}

TEST(Device, WhereAModelIsAlreadyNothingMoves) {
  const program::Model model = models::make_model("resnet8", {});
  const program::Model same = on_device(model, at::kCPU);
  EXPECT_TRUE(same.weights.params.front().value().is_same(model.weights.params.front().value()));
}

TEST(Device, ABatchGoesWhereItIsWanted) {
  const data::Batch batch{at::zeros({2, 3, 4, 4}), at::zeros({2}, at::kLong)};
  EXPECT_TRUE(on_device(batch, at::kMeta).images.is_meta());
  EXPECT_TRUE(on_device(batch, at::kMeta).labels.is_meta());
  EXPECT_TRUE(on_device(batch, at::kCPU).images.is_same(batch.images));
}

}  // namespace
}  // namespace prunex::train
