#include "prunex/models/models.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "prunex/program/macs.h"
#include "tests/texts.h"

namespace prunex::models {
namespace {

using program::Mode;
using program::Model;
using tests::message;

int64_t parameters(const std::string& name, const ModelOptions& options) {
  return program::parameter_count(make_model(name, options).weights);
}

// torchvision 0.26's own counts.
TEST(Models, AtAThousandClassesHaveTorchvisionsParameters) {
  const ModelOptions imagenet{.classes = 1000, .height = 224, .width = 224};
  EXPECT_EQ(parameters("resnet18", imagenet), 11689512);
  EXPECT_EQ(parameters("resnet50", imagenet), 25557032);
  EXPECT_EQ(parameters("resnet152", imagenet), 60192808);
  EXPECT_EQ(parameters("wide_resnet50_2", imagenet), 68883240);
  EXPECT_EQ(parameters("vgg16_bn", imagenet), 138365992);
  EXPECT_EQ(parameters("vgg19_bn", imagenet), 143678248);
}

// He et al., section 4.2, plus the two projection shortcuts with batch norm: 16*32 + 64 and 32*64 + 128.
TEST(Models, CifarResnetsHaveThePapersParametersAndProjections) {
  EXPECT_EQ(parameters("resnet8", {}), 78042);
  EXPECT_EQ(parameters("resnet20", {}), 269722 + 2752);
  EXPECT_EQ(parameters("resnet56", {}), 853018 + 2752);
}

// As Torch-Pruning 1.6.1 counts it for CIFAR-100.
TEST(Models, TheVgg19ForCifarHasTorchPruningsParameters) {
  EXPECT_EQ(parameters("vgg19", {.classes = 100}), 20086692);
}

// Summed by hand: 32x32, 16x16 and 8x8 positions times the kernels.
TEST(Models, Resnet20CountsItsMultiplyAccumulates) {
  const int64_t stem = 1024 * 27 * 16;
  const int64_t first = 1024 * 6 * 2304;
  const int64_t second = 256 * (4608 + 5 * 9216 + 512);
  const int64_t third = 64 * (18432 + 5 * 36864 + 2048);
  const Model model = make_model("resnet20", {});
  EXPECT_EQ(program::macs(model.program.graph()), stem + first + second + third + 640);
}

// As Torch-Pruning has it, whose images are of 32 pixels a side: it pools behind the first three of five stages; and
// for large images behind the fourth, too. Positions times 3x3 kernels, then the classifier of the mean.
TEST(Models, TheVgg19ForCifarPoolsBehindThreeStagesAndForLargeImagesBehindFour) {
  const std::vector<std::vector<int64_t>> stages{
      {64, 64}, {128, 128}, {256, 256, 256, 256}, {512, 512, 512, 512}, {512, 512, 512, 512}};
  for (const auto& [pixels, pools] : std::vector<std::pair<int64_t, size_t>>{{32, 3}, {63, 3}, {64, 4}}) {
    int64_t macs = 512 * 10, side = pixels, in = 3;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      for (const int64_t out : stages[stage]) macs += side * side * 9 * std::exchange(in, out) * out;
      if (stage < pools) side /= 2;
    }
    const Model model = make_model("vgg19", {.height = pixels, .width = pixels});
    EXPECT_EQ(program::macs(model.program.graph()), macs) << pixels;
  }
}

// Torch-Pruning's figures include batch norms and poolings; He et al. give 1.8 and 15.3 billion.
TEST(Models, ImagenetModelsCountThePublishedMultiplyAccumulates) {
  const ModelOptions imagenet{.classes = 1000, .height = 224, .width = 224};
  EXPECT_EQ(program::macs(make_model("resnet18", imagenet).program.graph()), 1814073344);
  EXPECT_EQ(program::macs(make_model("resnet50", imagenet).program.graph()), 4089184256);
}

TEST(Models, WidthMultipliesTheChannelsOfCifarResnets) {
  const Model model = make_model("resnet8", {.multiplier = 0.5});
  EXPECT_EQ(model.weights.params["conv1.weight"].size(0), 8);
  EXPECT_EQ(model.weights.params["fc.weight"].size(1), 32);
}

// Wu & He's 32 groups where each has 4 channels or more; 30 channels: 6 groups of 5, as 7 would not divide them.
TEST(Models, GroupNormHasThirtyTwoGroupsOfFourChannelsOrMore) {
  for (const auto& [channels, groups] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 1}, {16, 4}, {30, 6}, {64, 16}, {128, 32}, {2048, 32}}) {
    EXPECT_EQ(norm_groups(channels), groups) << channels;
  }
}

// Two vectors per norm as before, without statistics.
TEST(Models, GroupNormKeepsNoStatistics) {
  const Model batch = make_model("resnet20", {}), group = make_model("resnet20", {.norm = Norm::kGroup});
  EXPECT_EQ(program::parameter_count(group.weights), program::parameter_count(batch.weights));
  EXPECT_TRUE(group.weights.buffers.is_empty());
  for (const program::Node& node : group.program.graph().nodes) EXPECT_NE(node.target, "aten::batch_norm");
}

TEST(Models, SmallImagesMeetASmallStem) {
  const Model model = make_model("resnet18", {});
  EXPECT_EQ(model.weights.params["conv1.weight"].sizes(), (std::vector<int64_t>{64, 3, 3, 3}));
  for (const program::Node& node : model.program.graph().nodes) EXPECT_NE(node.target, "aten::max_pool2d");
}

TEST(Models, TheSeedDecidesTheWeights) {
  Model one = make_model("resnet8", {.seed = 1}), again = make_model("resnet8", {.seed = 1});
  Model two = make_model("resnet8", {.seed = 2});
  for (const auto& item : one.weights.params) {
    EXPECT_TRUE(at::equal(item.value(), again.weights.params[item.key()])) << item.key();
  }
  EXPECT_FALSE(at::equal(one.weights.params["conv1.weight"], two.weights.params["conv1.weight"]));
}

// Kaiming normal over fan_out for convolutions; uniform within 1/sqrt(in) for the ResNets' classifier.
TEST(Models, InitialWeightsFollowTheirLaws) {
  Model model = make_model("resnet18", {.classes = 1000});
  const at::Tensor conv = model.weights.params["layer4.1.conv2.weight"].detach();
  EXPECT_NEAR(conv.std().item<double>(), std::sqrt(2.0 / (512 * 9)), 1e-4);
  EXPECT_NEAR(conv.mean().item<double>(), 0, 1e-4);
  const at::Tensor fc = model.weights.params["fc.weight"].detach();
  EXPECT_LE(fc.abs().max().item<double>(), 1 / std::sqrt(512.0));
  EXPECT_NEAR(fc.std().item<double>(), 1 / std::sqrt(3 * 512.0), 1e-4);
  EXPECT_GT(model.weights.params["fc.bias"].abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(model.weights.params["bn1.weight"], at::ones({64})));
}

TEST(Models, RunInBothModes) {
  Model model = make_model("resnet8", {});
  const at::Tensor images = at::zeros({3, 3, 32, 32});
  for (Mode mode : {Mode::kTrain, Mode::kEval}) {
    const std::vector<at::Tensor> out = model.program.run({images}, model.weights, mode);
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].sizes(), (std::vector<int64_t>{3, 10}));
  }
}

TEST(Models, UnknownNamesListTheKnownOnes) {
  EXPECT_THROW(make_model("resnet19", {}), std::invalid_argument);
  const std::string text = message([] { make_model("resnet19", {}); });
  EXPECT_THAT(text, testing::HasSubstr("resnet19"));
  for (const std::string& name : model_names()) EXPECT_THAT(text, testing::HasSubstr(name));
}

TEST(Models, OptionsThatDoNotFitAreRefused) {
  EXPECT_THROW(make_model("resnet18", {.multiplier = 0.5}), std::invalid_argument);
  EXPECT_THAT(message([] { make_model("resnet18", {.multiplier = 0.5}); }), testing::HasSubstr("`width`"));
  EXPECT_THAT(message([] { make_model("resnet8", {.multiplier = -1}); }), testing::HasSubstr("`width`"));
  EXPECT_THAT(message([] { make_model("resnet8", {.classes = 0}); }), testing::HasSubstr("0 classes"));
  EXPECT_THAT(message([] { make_model("vgg16_bn", {.height = 16, .width = 16}); }), testing::HasSubstr("does not fit"));
}

}  // namespace
}  // namespace prunex::models
