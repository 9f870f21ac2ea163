// Mixed batches, against their formulas written out.
#include "prunex/train/mixing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace prunex::train {
namespace {

double drawn_share(double alpha, const BatchPlace& place) {
  return draw_mix({.mixup = alpha}, place, 6, 8).image;
}

/// The largest distance between the draws' distribution and `cdf` (Kolmogorov and Smirnov).
double distance(double alpha, const std::function<double(double)>& cdf) {
  constexpr int kDrawn = 20000;
  std::vector<double> drawn;
  for (int step = 0; step < kDrawn; ++step) drawn.push_back(drawn_share(alpha, {.seed = 3, .step = step}));
  std::sort(drawn.begin(), drawn.end());
  double largest = 0;
  for (int i = 0; i < kDrawn; ++i) {
    largest = std::max(largest, std::abs(cdf(drawn[i]) - (i + 0.5) / kDrawn));
  }
  return largest;
}

TEST(Beta, HasItsDistribution) {
  constexpr double kAtOnePercent = 1.63 / 141.4;  // 1.63 / sqrt(20000)
  EXPECT_LT(distance(0.5, [](double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); }), kAtOnePercent);
  EXPECT_LT(distance(1, [](double x) { return x; }), kAtOnePercent);
  EXPECT_LT(distance(2, [](double x) { return x * x * (3 - 2 * x); }), kAtOnePercent);
}

TEST(Beta, OfTinyAlphasIsNearlyACoin) {
  int low = 0, high = 0;
  for (int step = 0; step < 1000; ++step) {
    const double lambda = drawn_share(0.001, {.step = step});
    ASSERT_TRUE(lambda >= 0 && lambda <= 1) << lambda;
    low += lambda < 0.01;
    high += lambda > 0.99;
  }
  EXPECT_NEAR(low, 500, 60);
  EXPECT_NEAR(high, 500, 60);
}

Mix mix_at(const MixOptions& options, const BatchPlace& place) {
  return draw_mix(options, place, 6, 8);
}

TEST(DrawMix, DependsOnSeedEpochStepAndRankAlone) {
  const MixOptions options{.mixup = 1};
  std::set<double> seen;
  for (const BatchPlace place : {BatchPlace{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0, 0, 0, 0}}) {
    EXPECT_EQ(mix_at(options, place).image, mix_at(options, place).image);
    seen.insert(mix_at(options, place).image);
  }
  EXPECT_EQ(seen.size(), 5);
}

TEST(DrawMix, CutsBoxesInsideTheImageAndWeighsLabelsByTheirArea) {
  bool cut_off = false;
  for (int64_t step = 0; step < 200; ++step) {
    const Mix mix = mix_at({.cutmix = 1}, {.step = step});
    EXPECT_EQ(mix.image, 1);
    EXPECT_TRUE(0 <= mix.top && mix.top <= mix.bottom && mix.bottom <= 6);
    EXPECT_TRUE(0 <= mix.left && mix.left <= mix.right && mix.right <= 8);
    const auto area = static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left));
    EXPECT_DOUBLE_EQ(mix.label, 1 - area / 48);
    cut_off = cut_off || (mix.top == 0 && mix.bottom % 2 == 1);
  }
  EXPECT_TRUE(cut_off);
}

TEST(DrawMix, TakesOneOfBothPerBatch) {
  int boxes = 0;
  for (int64_t step = 0; step < 400; ++step) boxes += mix_at({.mixup = 1, .cutmix = 1}, {.step = step}).image == 1;
  EXPECT_NEAR(boxes, 200, 40);
}

/// torchvision.transforms.v2's formulas for image b, whose other is b - 1, round the end.
TEST(Mixed, ImagesAndLabelsAreTheFormulas) {
  const at::Tensor images = at::randn({3, 2, 6, 8}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor labels = at::tensor({2, 0, 1}, at::kLong);
  const Mix mixup{.image = 0.3, .label = 0.3};
  const Mix cutmix{.image = 1, .label = 1 - 6.0 / 48, .top = 1, .bottom = 4, .left = 5, .right = 7};
  for (const Mix& mix : {mixup, cutmix}) {
    const at::Tensor got = mixed(images, mix.numbers()), shares = mixed_labels(labels, mix.numbers(), 4, at::kFloat);
    EXPECT_EQ(got.strides(), images.strides());
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t other = (b + 2) % 3;
      for (int64_t y = 0; y < 6; ++y) {
        for (int64_t x = 0; x < 8; ++x) {
          const bool box = y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right;
          const double own = box ? 0 : mix.image;
          const double want =
              own * images[b][1][y][x].item<double>() + (1 - own) * images[other][1][y][x].item<double>();
          EXPECT_NEAR(got[b][1][y][x].item<double>(), want, 1e-6);
        }
      }
      at::Tensor want = at::zeros({4});
      want[labels[b].item<int64_t>()] += mix.label;
      want[labels[other].item<int64_t>()] += 1 - mix.label;
      EXPECT_TRUE(at::allclose(shares[b], want, 1e-6, 1e-7));
    }
  }
}

}  // namespace
}  // namespace prunex::train
