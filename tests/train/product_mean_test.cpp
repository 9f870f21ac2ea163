// The mean that is evaluated and shipped, against its recurrence.
#include "prunex/train/product_mean.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/io/safetensors.h"
#include "tests/groups.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;

Weights weights_of(uint64_t seed) {
  Weights weights{tests::random_tensors(at::kDouble, at::MemoryFormat::ChannelsLast, seed), TensorDict()};
  weights.buffers.insert("mean", at::full({3}, static_cast<double>(seed)));
  return weights;
}

TEST(ProductMean, DecaysPerStepFromTheFirstProductOn) {
  ProductMean mean(0.9);
  EXPECT_TRUE(mean.of(weights_of(1)).params["first"].equal(weights_of(1).params["first"]));
  at::Tensor want;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Weights product = weights_of(seed);
    const at::Tensor& z = product.params["first"];
    want = seed == 1 ? z.clone() : 0.9 * 0.9 * want + (1 - 0.9 * 0.9) * z;
    mean.add(product, 2);
    EXPECT_TRUE(at::allclose(mean.of(product).params["first"], want, 1e-14, 1e-14));
    EXPECT_TRUE(mean.of(product).buffers["mean"].equal(product.buffers["mean"]));
  }
}

TEST(ProductMean, OffIsTheProduct) {
  ProductMean mean(0);
  mean.add(weights_of(1), 2);
  EXPECT_TRUE(mean.of(weights_of(2)).params["first"].equal(weights_of(2).params["first"]));
  TensorDict state;
  mean.save(state);
  EXPECT_TRUE(state.is_empty());
}

TEST(ProductMean, IsCutSavedAndLoaded) {
  ProductMean mean(0.5), other(0.5);
  mean.add(weights_of(1), 1);
  const std::vector<sparsity::Group> groups{tests::groups_of_every_kind()[0]};
  sparsity::Masks masks;
  masks.insert("coupled", at::tensor({1, 0, 1, 0, 0, 1}, at::kLong).to(at::kBool));
  const sparsity::Cut cut =
      sparsity::make_cut(groups, masks, sparsity::shapes_of({weights_of(1).params, TensorDict()}));
  mean.cut(cut);
  TensorDict state;
  mean.save(state);
  TensorDict now = weights_of(3).params;
  EXPECT_THAT(tests::message([&] { other.load(state, now); }), HasSubstr("tensor ema/first is ["));
  sparsity::apply_cut(now, cut);
  other = ProductMean(0.5);
  other.load(state, now);
  const at::Tensor kept = weights_of(1).params["first"].index_select(0, at::tensor({0, 2, 5}, at::kLong));
  EXPECT_TRUE(other.of(weights_of(2)).params["first"].equal(kept));
  state.erase("ema/first");
  EXPECT_EQ(tests::message([&] { ProductMean(0.5).load(state, now); }), "has no tensor ema/first");
}

TEST(ProductMean, IsNoneYetWhereNothingOfItIsSaved) {
  ProductMean mean(0.5);
  mean.load(weights_of(1).params, weights_of(1).params);
  EXPECT_TRUE(mean.of(weights_of(2)).params["first"].equal(weights_of(2).params["first"]));
}

/// Of one rank without an exchange of its own, local SGD's product after every step is theta: the checkpoints' mean.
TEST(Train, ShipsTheMeanOfProducts) {
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(64, 4);
  options.strategy = "local_sgd";
  options.checkpoint_every = 1;
  options.ema = 0.8;
  std::vector<TensorDict> products;
  for (int64_t exchanges = 1; exchanges <= 4; ++exchanges) {
    options.run_dir = scratch / std::to_string(exchanges);
    options.exchanges = exchanges;
    options.schedule = LearningRateSchedule::kConstant;
    run_to_end(options);
    const auto checkpoint = options.run_dir + "/checkpoint/" + std::to_string(exchanges) + "/z.safetensors";
    products.push_back(io::read_safetensors(checkpoint).tensors);
  }
  const auto shipped = io::read_safetensors(scratch / "4/model.safetensors").tensors;
  const double kept = 0.8 * 0.8;  // two steps
  for (const auto& item : shipped) {
    if (item.key().find("running_") != std::string::npos || !item.value().is_floating_point()) continue;
    at::Tensor want = products[0][item.key()].clone();
    for (int k = 1; k < 4; ++k) want = kept * want + (1 - kept) * products[k][item.key()];
    EXPECT_TRUE(at::allclose(item.value(), want, 1e-5, 1e-6)) << item.key();
    EXPECT_FALSE(at::equal(item.value(), products[3][item.key()])) << item.key();
  }
}

}  // namespace
}  // namespace prunex::train
