#include "prunex/channels/analysis.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "tests/channels/cut_check.h"
#include "tests/channels/words.h"

namespace prunex::channels {
namespace {

using program::Builder;
using program::Model;
using program::ValueId;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t count(const std::vector<DependencyGroup>& groups, GroupKind kind) {
  return std::count_if(groups.begin(), groups.end(), [&](const auto& group) { return group.kind == kind; });
}

double error(Model& model) {
  const at::Tensor images = at::linspace(-1, 1, 2 * 2 * 8 * 8).sin().reshape({2, 2, 8, 8});
  return cut_error(model, images);
}

TEST(Groups, AChainHasOneGroupPerLayerBetweenInputAndOutput) {
  Builder net(0);
  ValueId x = net.input("x", {2, 8, 8});
  x = net.relu_(net.batch_norm("bn", net.conv2d("a", x, {.out = 4, .kernel = 3, .bias = true})));
  Model model = classify(net, net.conv2d("b", x, {.out = 5}));
  const auto groups = Analysis(model.program.graph()).groups();
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].kind, GroupKind::kInput);
  EXPECT_EQ(groups[0].name, "x");
  EXPECT_EQ(groups[0].size, 2);
  EXPECT_THAT(words(groups[0]), ElementsAre("a.weight:1"));
  EXPECT_EQ(groups[1].name, "a");
  EXPECT_EQ(groups[1].size, 4);
  EXPECT_TRUE(groups[1].prunable);
  EXPECT_THAT(words(groups[1]), ElementsAre("a.bias:0", "a.weight:0", "b.weight:1", "bn.bias:0", "bn.running_mean:0",
                                            "bn.running_var:0", "bn.weight:0"));
  EXPECT_THAT(words(groups[2]), ElementsAre("b.weight:0", "fc.weight:1"));
  EXPECT_EQ(groups[3].kind, GroupKind::kOutput);
  EXPECT_THAT(words(groups[3]), ElementsAre("fc.bias:0", "fc.weight:0"));
  EXPECT_FALSE(groups[3].prunable);
  EXPECT_EQ(groups[3].reason, "the model's output");
  EXPECT_LT(error(model), 1e-5);
}

/// Of the sum over the channels of 8 x 8 positions.
Model classify_sum(Builder& net, ValueId x) {
  const ValueId sum = net.call(
      "aten::sum.dim_IntList",
      {Builder::tensor("self", x), Builder::literal("dim", std::vector<int64_t>{1}), Builder::literal("keepdim", true)},
      {{1, true}, {1}, {8}, {8}});
  return std::move(net).finish(net.linear("fc", net.flatten(sum), {.out = 3}));
}

// In eval mode dropout gives its input back: what is added to its result in place is in the sum over its input, too.
TEST(Groups, WritesBehindDropoutReachItsInput) {
  for (const bool writes : {false, true}) {
    Builder net(0);
    const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
    const ValueId dropped = net.dropout(x, 0.5);
    if (writes) {
      net.call("aten::add_.Tensor", {Builder::tensor("self", dropped), Builder::literal("other", 1)}, net.shape(x));
    }
    const Model model = classify_sum(net, x);
    EXPECT_EQ(find_group(Analysis(model.program.graph()).groups(), "a").prunable, !writes);
  }
}

// v = x.flatten(2); v.relu_().add_(1): x is 1 where its unit is masked, however many writes were before.
TEST(Groups, WritesThroughAViewBehindOthersReachItsBase) {
  for (const int writes : {0, 1, 2}) {
    Builder net(0);
    const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
    ValueId v = net.call("aten::flatten.using_ints", {Builder::tensor("self", x), Builder::literal("start_dim", 2)},
                         {{1, true}, {4}, {64}});
    if (writes > 0) v = net.relu_(v);
    if (writes > 1) {
      net.call("aten::add_.Tensor", {Builder::tensor("self", v), Builder::literal("other", 1)}, net.shape(v));
    }
    const Model model = classify_sum(net, x);
    EXPECT_EQ(find_group(Analysis(model.program.graph()).groups(), "a").prunable, writes < 2) << writes;
  }
}

TEST(Groups, AResidualAddMakesOneStreamOfItsBranches) {
  Builder net(0);
  const ValueId x = net.conv2d("b", net.input("x", {2, 8, 8}), {.out = 4});
  const ValueId y = net.conv2d("c", net.relu(x), {.out = 6, .kernel = 3, .padding = 1});
  Model model = classify(net, net.add(net.conv2d("a", y, {.out = 4}), x));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_EQ(find_group(groups, "a").kind, GroupKind::kStream);
  EXPECT_THAT(words(find_group(groups, "a")), ElementsAre("a.weight:0", "b.weight:0", "c.weight:1", "fc.weight:1"));
  EXPECT_EQ(find_group(groups, "c").kind, GroupKind::kInner);
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, AGateAndWhatItScalesAreNoStream) {
  for (const char* how : {"aten::mul.Tensor", "aten::add.Tensor"}) {
    Builder net(0);
    const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
    const ValueId pooled = net.call("aten::mean.dim",
                                    {Builder::tensor("self", x), Builder::literal("dim", std::vector<int64_t>{2, 3}),
                                     Builder::literal("keepdim", true)},
                                    {{1, true}, {4}, {1}, {1}});
    const ValueId gate = net.conv2d("up", net.relu(net.conv2d("down", pooled, {.out = 3})), {.out = 4});
    const ValueId y = net.call(how, {Builder::tensor("self", x), Builder::tensor("other", gate)}, net.shape(x));
    Model model = classify(net, y);
    const auto groups = Analysis(model.program.graph()).groups();
    const bool joins = how == std::string("aten::add.Tensor");
    EXPECT_EQ(find_group(groups, "a").kind, joins ? GroupKind::kStream : GroupKind::kInner) << how;
    EXPECT_LT(error(model), 1e-5);
  }
}

TEST(Groups, AResidualAddWithTheInputCannotBePruned) {
  Builder net(0);
  const ValueId x = net.input("x", {2, 8, 8});
  Model model = classify(net, net.add(net.conv2d("a", x, {.out = 2}), x));
  const auto groups = Analysis(model.program.graph()).groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].kind, GroupKind::kInput);
  EXPECT_THAT(words(groups[0]), ElementsAre("a.weight:0", "a.weight:1", "fc.weight:1"));
  EXPECT_EQ(groups[0].reason, "the model's input");
}

TEST(Groups, AConcatenationGivesEachPartItsRange) {
  Builder net(0);
  const ValueId x = net.input("x", {2, 8, 8});
  const ValueId a = net.conv2d("a", x, {.out = 2}), b = net.conv2d("b", x, {.out = 3});
  Model model = classify(net, net.conv2d("c", net.batch_norm("bn", net.cat({a, x, b, a}, 1)), {.out = 4}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "a")),
              ElementsAre("a.weight:0", "bn.bias:0[0 7 1 8]", "bn.running_mean:0[0 7 1 8]", "bn.running_var:0[0 7 1 8]",
                          "bn.weight:0[0 7 1 8]", "c.weight:1[0 7 1 8]"));
  EXPECT_THAT(words(find_group(groups, "b")), testing::Contains("c.weight:1[4 5 6]"));
  EXPECT_THAT(words(find_group(groups, "x")), testing::Contains("c.weight:1[2 3]"));
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, FlatteningGivesEachChannelItsPositions) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 3});
  x = net.flatten(net.max_pool2d(x, {.kernel = 4, .stride = 4}));
  Model model = std::move(net).finish(net.linear("fc", x, {.out = 3}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "a")), ElementsAre("a.weight:0", "fc.weight:1[0 1 2 3 4 5 6 7 8 9 10 11]"));
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, FlatteningWithChannelsLastInterleaves) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 2, 1}), {.out = 3});
  x = net.call("aten::permute",
               {Builder::tensor("self", x), Builder::literal("dims", std::vector<int64_t>{0, 2, 3, 1})},
               {{1, true}, {2}, {1}, {3}});
  Model model = std::move(net).finish(net.linear("fc", net.flatten(x), {.out = 3}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "a")), ElementsAre("a.weight:0", "fc.weight:1[0 3 1 4 2 5]"));
}

TEST(Groups, ADepthwiseConvolutionFollowsItsInput) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
  x = net.batch_norm("bn", net.conv2d("deep", x, {.out = 8, .kernel = 3, .groups = 4}));
  Model model = classify(net, x);
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_EQ(find_group(groups, "a").kind, GroupKind::kInner);
  EXPECT_EQ(find_group(groups, "a").size, 4);
  EXPECT_THAT(words(find_group(groups, "a")),
              testing::IsSupersetOf({"a.weight:0", "deep.weight:0[0 1 2 3 4 5 6 7]", "bn.weight:0[0 1 2 3 4 5 6 7]"}));
}

TEST(Groups, AGroupedConvolutionLosesEqualPositionsOfEveryGroup) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 6});
  Model model = classify(net, net.conv2d("b", x, {.out = 8, .kernel = 3, .groups = 2}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_EQ(find_group(groups, "a").size, 3);
  EXPECT_THAT(words(find_group(groups, "a")), ElementsAre("a.weight:0[0 3 1 4 2 5]", "b.weight:1"));
  EXPECT_EQ(find_group(groups, "b").size, 4);
  EXPECT_THAT(words(find_group(groups, "b")),
              ElementsAre("b.weight:0[0 4 1 5 2 6 3 7]", "fc.weight:1[0 4 1 5 2 6 3 7]"));
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, AnOperationWithoutARuleFreezesWhatItTouchesAndIsNamed) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
  const program::Shape shape = net.shape(x);
  x = net.call("aten::flip", {Builder::tensor("self", x), Builder::literal("dims", std::vector<int64_t>{1})}, shape);
  Model model = classify(net, net.conv2d("b", x, {.out = 4}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_FALSE(find_group(groups, "a").prunable);
  EXPECT_THAT(find_group(groups, "a").reason, HasSubstr("aten::flip (node flip) has no rule"));
  EXPECT_TRUE(find_group(groups, "b").prunable);
  EXPECT_LT(error(model), 1e-5);
}

/// The size counts what a cut changes.
TEST(Groups, ARepetitionToAGivenSizeIsNotCut) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
  x = net.call("aten::repeat_interleave.self_int",
               {Builder::tensor("self", x), Builder::literal("repeats", 2), Builder::literal("dim", 1),
                Builder::literal("output_size", 8)},
               {{1, true}, {8}, {8}, {8}});
  Model model = classify(net, x);
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(find_group(groups, "a").reason, HasSubstr("to a given size has no rule"));
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, TheResultOfAnOperationWithoutARuleFreezesWhatItMeets) {
  Builder net(0);
  const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4}), y = net.conv2d("b", x, {.out = 4});
  const ValueId rolled =
      net.call("aten::roll", {Builder::tensor("self", x), Builder::literal("shifts", 1)}, program::Shape(net.shape(x)));
  Model model = classify(net, net.add(y, rolled));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(find_group(groups, "b").reason, HasSubstr("aten::add.Tensor"));
}

TEST(Groups, AGateOfOneChannelCouplesNothing) {
  Builder net(0);
  const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4});
  const ValueId gate = net.conv2d("gate", x, {.out = 1});
  const program::Shape shape = net.shape(x);
  Model model =
      classify(net, net.call("aten::mul.Tensor", {Builder::tensor("self", x), Builder::tensor("other", gate)}, shape));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_TRUE(find_group(groups, "a").prunable);
  EXPECT_EQ(find_group(groups, "a").kind, GroupKind::kInner);
  EXPECT_EQ(find_group(groups, "gate").reason, "it has a single unit");
  EXPECT_LT(error(model), 1e-5);
}

TEST(Groups, NamesAndSlicesDoNotDependOnTheOrderOfTheNodes) {
  const auto make = [](bool swapped) {
    Builder net(0);
    const ValueId x = net.input("x", {2, 8, 8});
    const auto a = [&] { return net.conv2d("a10", x, {.out = 4}); };
    const auto b = [&] { return net.conv2d("a9", x, {.out = 4}); };
    const ValueId first = swapped ? b() : a(), second = swapped ? a() : b();
    return classify(net, net.add(first, second));
  };
  const auto one = Analysis(make(false).program.graph()).groups(), two = Analysis(make(true).program.graph()).groups();
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].name, two[i].name);
    EXPECT_EQ(words(one[i]), words(two[i]));
  }
  EXPECT_EQ(one[1].name, "a9");
}

// 8 basic blocks; 4 stages. Torch-Pruning finds 12 groups.
TEST(Groups, Resnet18HasEightInnerAndFourStreamGroups) {
  const Model model = models::make_model("resnet18", {});
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_EQ(count(groups, GroupKind::kInner), 8);
  EXPECT_EQ(count(groups, GroupKind::kStream), 4);
  EXPECT_EQ(count(groups, GroupKind::kInput), 1);
  EXPECT_EQ(count(groups, GroupKind::kOutput), 1);
  EXPECT_EQ(find_group(groups, "conv1").size, 64);
  EXPECT_EQ(find_group(groups, "layer2.0.conv2").kind, GroupKind::kStream);
}

// Torch-Pruning 1.6.1: 37 of resnet50 and wide_resnet50_2, 15 of vgg16_bn, 12 of resnet20, 30 of resnet56,
// 16 of the VGG-19 for CIFAR.
TEST(Groups, BuiltInModelsHaveTorchPruningsNumberOfGroups) {
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"resnet50", 37}, {"vgg16_bn", 15}, {"resnet20", 12}, {"resnet56", 30}, {"vgg19", 16}};
  for (const auto& [name, number] : expected) {
    const Model model = models::make_model(name, {});
    const auto groups = Analysis(model.program.graph()).groups();
    EXPECT_EQ(count(groups, GroupKind::kInner) + count(groups, GroupKind::kStream), number) << name;
    for (const DependencyGroup& group : groups) {
      const bool inside = group.kind == GroupKind::kInner || group.kind == GroupKind::kStream;
      EXPECT_EQ(group.prunable, inside) << name << " " << group.name << " " << group.reason;
    }
  }
}

// Units are whole groups of the norm: 16 channels in groups of 4, 512 in 32 groups.
TEST(Groups, GroupNormLeavesItsGroupsAsUnits) {
  const Model small = models::make_model("resnet8", {.norm = models::Norm::kGroup});
  const Model wide = models::make_model("resnet18", {.norm = models::Norm::kGroup});
  const Analysis of_small(small.program), of_wide(wide.program);
  const DependencyGroup inner = find_group(of_small.groups(), "layer1.0.conv1");
  EXPECT_TRUE(inner.prunable && inner.inexact.empty()) << inner.reason;
  EXPECT_EQ(inner.size, 4);
  EXPECT_EQ(find_group(of_small.groups(), "layer3.0.conv1").size, 16);
  EXPECT_EQ(find_group(of_wide.groups(), "layer4.0.conv1").size, 32);
}

TEST(Groups, CuttingBuiltInModelsEqualsMaskingThem) {
  const std::pair<const char*, models::Norm> cases[] = {
      {"resnet8", models::Norm::kBatch},  {"resnet20", models::Norm::kBatch}, {"resnet18", models::Norm::kBatch},
      {"resnet50", models::Norm::kBatch}, {"resnet8", models::Norm::kGroup},  {"resnet18", models::Norm::kGroup}};
  for (const auto& [name, norm] : cases) {
    const Model model = models::make_model(name, {.norm = norm});
    const at::Tensor images = at::linspace(-9, 9, 3 * 32 * 32, at::kDouble).sin().reshape({1, 3, 32, 32});
    EXPECT_LT(cut_error(model, images), 1e-12) << name;
    const CutCheck half = check_cut(model, Keep::kHalf, images.to(at::kFloat));
    EXPECT_LT(half.error, 1e-5) << name;
    EXPECT_GT(half.effect, 1e-3) << name;
  }
}

}  // namespace
}  // namespace prunex::channels
