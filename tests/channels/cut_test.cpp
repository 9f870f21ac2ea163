#include "prunex/channels/analysis.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/macs.h"
#include "prunex/program/program.h"
#include "tests/channels/cut_check.h"
#include "tests/channels/words.h"

namespace prunex::channels {
namespace {

using program::Builder;
using program::Graph;
using program::Model;
using program::Node;
using program::Shape;
using program::ValueId;
using sparsity::Cut;
using testing::ElementsAre;
using testing::HasSubstr;

using Ints = std::vector<int64_t>;

at::Tensor images(at::ScalarType dtype = at::kDouble) {
  return at::linspace(-1, 1, 2 * 2 * 8 * 8, dtype).sin().reshape({2, 2, 8, 8});
}

void expect_exact(const Model& model) {
  EXPECT_LT(cut_error(model, images()), 1e-12);
}

/// Removes units of a group of the model.
Cut remove(const Model& model, const std::string& group, const Ints& dead) {
  const auto groups = Analysis(model.program.graph()).removable();
  sparsity::Masks masks = sparsity::full_masks(groups);
  masks[group].index_fill_(0, at::tensor(dead, at::kLong), false);
  return sparsity::make_cut(groups, masks, sparsity::shapes_of(model.weights));
}

const Node& find_node(const Graph& graph, const std::string& target) {
  for (const Node& node : graph.nodes) {
    if (node.target == target) return node;
  }
  throw std::out_of_range("no node " + target);
}

Ints list(const Node& node, const std::string& argument) {
  return node.find(argument)->literal.toIntVector();
}

int64_t number(const Node& node, const std::string& argument) {
  return node.find(argument)->literal.toInt();
}

/// The graph of a convolution behind one of `width` units that loses `dead` of them.
Graph cut_behind(int64_t width, const Ints& dead, const program::ConvOptions& convolution) {
  Builder net(0);
  const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = width});
  const Model model = classify(net, net.conv2d("b", x, convolution));
  expect_exact(model);
  return cut_graph(model.program.graph(), remove(model, "a", dead));
}

TEST(CutGraph, RewritesTheGroupsOfDepthwiseConvolutions) {
  const Graph small = cut_behind(4, {1}, {.out = 8, .kernel = 3, .groups = 4});
  EXPECT_EQ(number(small.nodes[1], "groups"), 3);
  EXPECT_EQ(small.values[small.nodes[1].outputs[0]].shape[1].factor, 6);
}

// Fewer filters than inputs, one per group: whole groups go.
TEST(CutGraph, RewritesGroupsThatMakeOneChannelEach) {
  const Graph small = cut_behind(12, {0, 5}, {.out = 6, .kernel = 3, .groups = 6});
  EXPECT_EQ(number(small.nodes[1], "groups"), 4);
}

TEST(CutGraph, KeepsTheGroupsThatLoseEqualPositions) {
  const Graph small = cut_behind(6, {1}, {.out = 8, .kernel = 3, .groups = 2});
  EXPECT_EQ(number(small.nodes[1], "groups"), 2);
  EXPECT_EQ(small.values[small.nodes[1].find("weight")->values[0]].shape[1].factor, 2);
}

TEST(CutGraph, GroupsOfCoprimeNumbersMeet) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 12});
  x = net.conv2d("c", net.conv2d("b", x, {.out = 12, .groups = 2}), {.out = 6, .groups = 3});
  expect_exact(classify(net, x));
}

TEST(CutGraph, RewritesTheSizesOfViews) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 6});
  const Shape folded{{1, true}, {6}, {64}};
  x = net.call("aten::view", {Builder::tensor("self", x), Builder::literal("size", Ints{-1, 6, 64})}, folded);
  x = net.call("aten::mean.dim", {Builder::tensor("self", x), Builder::literal("dim", Ints{2})}, {{1, true}, {6}});
  const Model model = std::move(net).finish(net.linear("fc", x, {.out = 3}));
  const Graph small = cut_graph(model.program.graph(), remove(model, "a", {0, 2}));
  EXPECT_THAT(list(find_node(small, "aten::view"), "size"), ElementsAre(-1, 4, 64));
  expect_exact(model);
}

TEST(CutGraph, ShufflesOfChannelsLoseEqualPositions) {
  Builder net(0);
  ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 8});
  const Shape apart{{1, true}, {2}, {4}, {8}, {8}}, crossed{{1, true}, {4}, {2}, {8}, {8}}, flat = net.shape(x);
  x = net.call("aten::view", {Builder::tensor("self", x), Builder::literal("size", Ints{-1, 2, 4, 8, 8})}, apart);
  x = net.call("aten::transpose.int",
               {Builder::tensor("self", x), Builder::literal("dim0", 1), Builder::literal("dim1", 2)}, crossed);
  x = net.call("aten::reshape", {Builder::tensor("self", x), Builder::literal("shape", Ints{-1, 8, 8, 8})}, flat);
  const Model model = classify(net, net.conv2d("b", x, {.out = 4}));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "a")),
              ElementsAre("a.weight:0[0 4 1 5 2 6 3 7]", "b.weight:1[0 1 2 3 4 5 6 7]"));
  const Graph small = cut_graph(model.program.graph(), remove(model, "a", {3}));
  EXPECT_THAT(list(find_node(small, "aten::view"), "size"), ElementsAre(-1, 2, 3, 8, 8));
  EXPECT_THAT(list(find_node(small, "aten::reshape"), "shape"), ElementsAre(-1, 6, 8, 8));
  expect_exact(model);
}

/// With one channel left per half a shuffle changes no order, and its reshape would show what it copied before.
TEST(CutGraph, CopiesThatAreWrittenToStayCopies) {
  Builder net(0);
  const ValueId y = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 8});
  const Shape apart{{1, true}, {2}, {4}, {8}, {8}}, crossed{{1, true}, {4}, {2}, {8}, {8}}, flat = net.shape(y);
  ValueId z =
      net.call("aten::view", {Builder::tensor("self", y), Builder::literal("size", Ints{-1, 2, 4, 8, 8})}, apart);
  z = net.call("aten::transpose.int",
               {Builder::tensor("self", z), Builder::literal("dim0", 1), Builder::literal("dim1", 2)}, crossed);
  z = net.call("aten::reshape", {Builder::tensor("self", z), Builder::literal("shape", Ints{-1, 8, 8, 8})}, flat);
  z = net.conv2d("b", net.relu_(z), {.out = 4});
  const Model model = classify(net, net.add(z, net.conv2d("c", y, {.out = 4})));
  expect_exact(model);
  const Graph& graph = model.program.graph();
  EXPECT_EQ(find_node(cut_graph(graph, remove(model, "a", {0, 1, 2})), "aten::clone").outputs,
            find_node(graph, "aten::reshape").outputs);
  EXPECT_EQ(cut_graph(graph, remove(model, "a", {0, 1})).nodes.size(), graph.nodes.size());
}

TEST(CutGraph, RewritesTheRangesOfSlices) {
  Builder net(0);
  const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 8});
  const Shape shape{{1, true}, {5}, {8}, {8}};
  const ValueId part = net.call("aten::slice.Tensor",
                                {Builder::tensor("self", x), Builder::literal("dim", 1), Builder::literal("start", 2),
                                 Builder::literal("end", 7)},
                                shape);
  const Model model = classify(net, net.cat({net.conv2d("b", part, {.out = 4}), x}, 1));
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "a[2]"))[0], "a.weight:0[2 3 4 5 6]");
  const Graph small = cut_graph(model.program.graph(), remove(model, "a", {1}));
  const Node& slice = find_node(small, "aten::slice.Tensor");
  EXPECT_EQ(number(slice, "start"), 1);
  EXPECT_EQ(number(slice, "end"), 6);
  expect_exact(model);
}

TEST(CutGraph, TheAxesThatASqueezeRemovesStayTheSame) {
  Builder net(0);
  ValueId x = net.adaptive_avg_pool2d(net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4}), {1, 1});
  x = net.call("aten::squeeze", {Builder::tensor("self", x)}, {{1, true}, {4}});
  const Model model = std::move(net).finish(net.linear("fc", x, {.out = 3}));
  const Graph small = cut_graph(model.program.graph(), remove(model, "a", {0, 1, 3}));
  EXPECT_THAT(list(find_node(small, "aten::squeeze.dims"), "dim"), ElementsAre(2, 3));
  expect_exact(model);
}

std::map<std::string, int64_t> macs_by_weight(const Graph& graph) {
  std::map<std::string, int64_t> macs;
  for (const Node& node : graph.nodes) {
    for (const auto& product : program::mac_products(graph, node)) {
      int64_t count = 1;
      for (const auto& [value, axis] : product) count *= graph.values[value].shape[axis].factor;
      macs[graph.values[node.tensor("weight")].weight] += count;
    }
  }
  return macs;
}

// Closed form: layer1 and the streams are halved, so every convolution between streams has a quarter of its MACs.
TEST(CutGraph, TheCutGraphCountsWhatIsLeft) {
  const Model model = models::make_model("resnet8", {});
  const CutCheck half = check_cut(model, Keep::kHalf, at::zeros({1, 3, 32, 32}));
  const auto before = macs_by_weight(model.program.graph());
  for (const auto& [weight, macs] : macs_by_weight(half.small.program.graph())) {
    const bool boundary = weight == "conv1.weight" || weight.starts_with("fc") || weight.starts_with("linear");
    EXPECT_EQ(macs * (boundary ? 2 : 4), before.at(weight)) << weight;
  }
}

TEST(CutGraph, AWeightCutTwiceEqualsTheComposition) {
  const Model model = models::make_model("resnet8", {});
  const CutCheck once = check_cut(model, Keep::kHalf, at::zeros({1, 3, 32, 32}));
  const CutCheck twice = check_cut(once.small, Keep::kHalf, at::zeros({1, 3, 32, 32}));
  const Cut both = sparsity::compose(once.cut, twice.cut);
  const Graph graph = cut_graph(model.program.graph(), both);
  for (size_t value = 0; value < graph.values.size(); ++value) {
    EXPECT_EQ(graph.values[value].shape, twice.small.program.graph().values[value].shape) << graph.values[value].name;
  }
  EXPECT_EQ(both.groups[0].size, once.cut.groups[0].size);
  EXPECT_EQ(both.groups[0].kept.size(), twice.cut.groups[0].kept.size());
}

class Refusals : public testing::Test {
 protected:
  Refusals() : model_(make()), cut_(remove(model_, "a", {1})) {}

  static Model make() {
    Builder net(0);
    const ValueId x = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 4, .bias = true});
    return classify(net, net.conv2d("b", x, {.out = 4}));
  }

  std::string complaint() const {
    try {
      cut_program(model_.program, cut_);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }

  Model model_;
  Cut cut_;
};

TEST_F(Refusals, HalfAUnit) {
  cut_.tensors["a.bias"].kept.clear();
  EXPECT_THAT(complaint(), HasSubstr("keeps position 1 of axis 0 of 'a.bias'"));
}

TEST_F(Refusals, WhatCannotBeRemoved) {
  cut_.tensors["fc.weight"].kept[0] = {0, 1};
  EXPECT_THAT(complaint(), HasSubstr("position 2 of axis 0 of 'fc.weight' cannot be removed: the model's output"));
}

TEST_F(Refusals, AxesWithoutUnits) {
  cut_.tensors["a.weight"].kept[2] = {};
  EXPECT_THAT(complaint(), HasSubstr("axis 2 of 'a.weight' has no units"));
}

TEST_F(Refusals, CutsOfOtherModels) {
  cut_.tensors["a.bias"].shape = {5};
  EXPECT_THAT(complaint(), HasSubstr("another 'a.bias'"));
  cut_.tensors.erase("a.bias");
  EXPECT_THAT(complaint(), HasSubstr("the cut lacks 'a.bias'"));
}

TEST_F(Refusals, RecordedShapesThatDoNotComeOut) {
  Graph graph = model_.program.graph();
  graph.values[graph.nodes[0].outputs[0]].shape[2].factor = 7;
  try {
    program::check_shapes(program::Program(graph));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("value 'conv2d' is [2, 4, 8, 8], wanted [2, 4, 7, 8]"));
  }
}

}  // namespace
}  // namespace prunex::channels
