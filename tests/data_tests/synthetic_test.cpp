// The built-in data set: reproducible, and beyond a linear model.
#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/data/loader.h"

namespace prunex::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// FNV-1a over the images in the order of memory.
uint64_t digest(const at::Tensor& images) {
  at::Tensor bytes = images.permute({0, 2, 3, 1}).contiguous();
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t i = 0; i < bytes.numel(); ++i) hash = (hash ^ bytes.const_data_ptr<uint8_t>()[i]) * 0x100000001b3;
  return hash;
}

TEST(Synthetic, IsAsLargeAndBalancedAsPromised) {
  Datasets data = make_synthetic(200, 0);
  EXPECT_EQ(data.train.images.sizes(), (std::vector<int64_t>{200, 3, 32, 32}));
  EXPECT_EQ(data.test.images.sizes(), (std::vector<int64_t>{40, 3, 32, 32}));
  EXPECT_TRUE(data.train.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::bincount(data.train.labels).eq(20).all().item<bool>());
  EXPECT_EQ(make_synthetic(10, 0).test.size(), 10);
  check_dataset(data.train, "synthetic");
}

TEST(Synthetic, IsTheSameForASeedAndAnotherForAnother) {
  at::Tensor images = make_synthetic(50, 3).train.images;
  EXPECT_TRUE(at::equal(make_synthetic(50, 3).train.images, images));
  EXPECT_FALSE(at::equal(make_synthetic(50, 4).train.images, images));
}

TEST(Synthetic, MoreSamplesExtendTheSequence) {
  Datasets small = make_synthetic(50, 0);
  Datasets large = make_synthetic(100, 0);
  EXPECT_TRUE(at::equal(large.train.images.narrow(0, 0, 50), small.train.images));
  EXPECT_TRUE(at::equal(large.test.images.narrow(0, 0, 10), small.test.images));
  EXPECT_FALSE(at::equal(small.train.images.narrow(0, 0, 10), small.test.images));
}

// The digest of the first run: other platforms and later versions must draw the same bytes, or results do not compare.
TEST(Synthetic, DrawsTheSameBytesEverywhere) {
  EXPECT_EQ(digest(make_synthetic(100, 0).train.images), 5222029811451322106u);
}

TEST(Synthetic, RefusesTooFewSamples) {
  EXPECT_THAT([] { make_synthetic(9, 0); }, ThrowsMessage<std::invalid_argument>(HasSubstr("`samples`: got 9")));
}

double accuracy(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
}

// Softmax regression by gradient descent with momentum on 4000 images, gradients in closed form.
TEST(Synthetic, ALinearModelStaysBelowSixtyPercent) {
  at::set_num_threads(1);
  Datasets data = make_synthetic(4000, 0);
  Batch train = evaluation_batch(data.train, 0, data.train.size());
  Batch test = evaluation_batch(data.test, 0, data.test.size());
  at::Tensor x = train.images.flatten(1).contiguous();
  at::Tensor target = at::one_hot(train.labels, 10).to(at::kFloat);
  at::Tensor weight = at::zeros({x.size(1), 10});
  at::Tensor velocity = at::zeros_like(weight);
  double best = 0;
  for (int step = 0; step < 600; ++step) {
    at::Tensor xs = x.narrow(0, step * 100 % 4000, 100);
    at::Tensor error = at::softmax(xs.mm(weight), 1) - target.narrow(0, step * 100 % 4000, 100);
    velocity.mul_(0.9).add_(xs.t().mm(error), 1e-2);
    weight.sub_(velocity, 1e-3);
    if (step % 40 == 39) best = std::max(best, accuracy(test.images.flatten(1).mm(weight), test.labels));
  }
  EXPECT_LT(best, 0.6);
  EXPECT_GT(accuracy(x.mm(weight), train.labels), 0.3) << "the linear model did not learn: no evidence";
}

}  // namespace
}  // namespace prunex::data
