#include "prunex/program/program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/program/graphs.h"

namespace prunex::program {
namespace {

std::vector<std::string> targets(const Graph& graph) {
  std::vector<std::string> result;
  for (const auto& node : graph.nodes) result.push_back(node.target);
  return result;
}

bool flag(const Graph& graph, const std::string& target, const std::string& name) {
  for (const auto& node : graph.nodes) {
    if (node.target == target) return node.find(name)->literal.toBool();
  }
  throw std::out_of_range(target);
}

// The nodes that torchvision.ops.stochastic_depth(x, 0.25, "row") leaves in a train export, x is value 0.
ValueId add_stochastic_depth(Graph& graph, bool noise_first) {
  const auto batch = add_size(graph, "aten::sym_size.int", {value("self", 0), literal("dim", 0)});
  const Argument sizes{.name = "size", .kind = Argument::Kind::kInts, .values = {batch, kNoValue}, .ints = {0, 1}};
  auto noise = add_node(graph, "aten::empty.memory_format", {sizes}, "empty");
  noise = add_node(graph, "aten::bernoulli_.float", {value("self", noise), literal("p", 0.75)}, "bernoulli_");
  noise = add_node(graph, "aten::div_.Tensor", {value("self", noise), literal("other", 0.75)}, "div_");
  return add_node(graph, "aten::mul.Tensor",
                  {value("self", noise_first ? noise : 0), value("other", noise_first ? 0 : noise)}, "mul");
}

TEST(Mode, EvalFormHasNoTrainingLeft) {
  const auto eval = in_mode(small_graph(), Mode::kEval);
  EXPECT_FALSE(flag(eval, "aten::batch_norm", "training"));
  EXPECT_EQ(targets(eval), (std::vector<std::string>{"aten::conv2d", "aten::batch_norm", "aten::relu_",
                                                     "aten::mean.dim", "aten::linear"}));
}

TEST(Mode, TrainFormOfAnEvalExportTrains) {
  const auto train = in_mode(in_mode(small_graph(), Mode::kEval), Mode::kTrain);
  EXPECT_TRUE(flag(train, "aten::batch_norm", "training"));
}

TEST(Mode, BatchNormWithoutStatisticsAlwaysUsesTheBatch) {
  auto graph = small_graph();
  for (auto& node : graph.nodes) {
    for (auto& argument : node.arguments) {
      if (argument.name.starts_with("running_")) argument = literal(argument.name, {});
    }
  }
  EXPECT_TRUE(flag(in_mode(graph, Mode::kEval), "aten::batch_norm", "training"));
}

TEST(Mode, DropoutFollowsTheMode) {
  auto graph = rows_graph(64);
  graph.outputs = {
      add_node(graph, "aten::dropout", {value("input", 0), literal("p", 0.5), literal("train", false)}, "dropout")};
  const Program program(graph);
  Weights none;
  const auto x = at::ones({8, 64});
  EXPECT_TRUE(at::equal(program.run({x}, none, Mode::kEval)[0], x));
  const auto dropped = program.run({x}, none, Mode::kTrain)[0];
  EXPECT_TRUE(at::equal(dropped.ne(0), dropped.eq(2)));  // kept elements are divided by 1 - p
  EXPECT_GT(dropped.eq(0).sum().item<int64_t>(), 0);
}

TEST(Mode, StochasticDepthDisappearsInEvaluation) {
  for (const bool noise_first : {false, true}) {
    auto graph = rows_graph(3);
    const auto scaled = add_stochastic_depth(graph, noise_first);
    graph.outputs = {add_node(graph, "aten::add.Tensor", {value("self", scaled), literal("other", 1)}, "add")};
    EXPECT_EQ(targets(in_mode(graph, Mode::kEval)), std::vector<std::string>{"aten::add.Tensor"});
    const Program program(graph);
    Weights none;
    const auto x = at::ones({64, 3});
    EXPECT_TRUE(at::equal(program.run({x}, none, Mode::kEval)[0], x + 1));
    const auto noisy = program.run({x}, none, Mode::kTrain)[0] - 1;  // a row is dropped or divided by 0.75
    EXPECT_TRUE(at::allclose(noisy.where(noisy.ne(0), x / 0.75), x / 0.75));
    EXPECT_TRUE(noisy.eq(0).any().item<bool>());
  }
}

TEST(Mode, StochasticDepthAtTheOutputGivesItsInput) {
  auto graph = rows_graph(3);
  const auto doubled = add_node(graph, "aten::mul.Tensor", {value("self", 0), literal("other", 2)}, "twice");
  graph.outputs = {add_stochastic_depth(graph, false)};
  const auto eval = in_mode(graph, Mode::kEval);
  EXPECT_EQ(eval.outputs, graph.inputs);
  EXPECT_EQ(eval.nodes.size(), 1u) << "the product of " << doubled << " is not noise and stays";
}

/// x * noise / 0.75 of torch.bernoulli(torch.full_like(x, 0.75)).
TEST(Mode, DrawnFactorsAreTheirProbabilitiesInEvaluation) {
  auto graph = rows_graph(3);
  auto noise = add_node(graph, "aten::full_like", {value("self", 0), literal("fill_value", 0.75)}, "share");
  noise = add_node(graph, "aten::bernoulli", {value("self", noise)}, "noise");
  const auto kept = add_node(graph, "aten::mul.Tensor", {value("self", 0), value("other", noise)}, "kept");
  graph.outputs = {add_node(graph, "aten::div.Scalar", {value("self", kept), literal("other", 0.75)}, "scaled")};
  const Program program(graph);
  Weights none;
  const auto x = at::ones({64, 3});
  EXPECT_TRUE(at::allclose(program.run({x}, none, Mode::kEval)[0], x));
  const auto noisy = program.run({x}, none, Mode::kTrain)[0];
  EXPECT_TRUE(noisy.eq(0).any().item<bool>());
  EXPECT_TRUE(at::allclose(noisy.where(noisy.ne(0), x / 0.75), x / 0.75));
}

enum class Scaled { kBefore, kAfter, kNever };

/// x times noise of mean 0.75, where not the noise is divided by 0.75 but x or the product, or nothing.
Graph noise_beside(Scaled scaled) {
  auto graph = rows_graph(3);
  auto noise = add_node(graph, "aten::empty_like", {value("self", 0)}, "empty");
  noise = add_node(graph, "aten::bernoulli_.float", {value("self", noise), literal("p", 0.75)}, "noise");
  ValueId x = 0;
  if (scaled == Scaled::kBefore) {
    x = add_node(graph, "aten::div.Tensor", {value("self", x), literal("other", 0.75)}, "larger");
  }
  x = add_node(graph, "aten::mul.Tensor", {value("self", x), value("other", noise)}, "kept");
  if (scaled == Scaled::kAfter) {
    x = add_node(graph, "aten::mul.Tensor", {value("self", x), literal("other", 1 / 0.75)}, "larger");
  }
  graph.outputs = {add_node(graph, "aten::add.Tensor", {value("self", x), literal("other", 1)}, "more")};
  return graph;
}

TEST(Mode, WhatMakesUpForNoiseGoesWithIt) {
  const auto x = at::randn({4, 3});
  Weights none;
  for (const auto scaled : {Scaled::kBefore, Scaled::kAfter, Scaled::kNever}) {
    const Program program(noise_beside(scaled));
    EXPECT_TRUE(at::equal(program.run({x}, none, Mode::kEval)[0], x + 1)) << static_cast<int>(scaled);
  }
}

TEST(Mode, DrawsThatAreWrittenToLeaveTheirProbabilities) {
  auto graph = rows_graph(3);
  const auto share = add_node(graph, "aten::full_like", {value("self", 0), literal("fill_value", 0.75)}, "share");
  const auto noise = add_node(graph, "aten::bernoulli", {value("self", share)}, "noise");
  const auto scaled = add_node(graph, "aten::div_.Scalar", {value("self", noise), literal("other", 0.75)}, "scaled");
  const auto kept = add_node(graph, "aten::mul.Tensor", {value("self", 0), value("other", scaled)}, "kept");
  graph.outputs = {kept, share};
  const Program program(graph);
  Weights none;
  const auto x = at::randn({4, 3});
  const auto outputs = program.run({x}, none, Mode::kEval);
  EXPECT_TRUE(at::allclose(outputs[0], x));
  EXPECT_TRUE(at::equal(outputs[1], at::full({4, 3}, 0.75)));
}

/// A convolution of 3 channels with padding by a word.
Graph padded_by(const std::string& word, std::vector<int64_t> kernel, int64_t stride, int64_t dilation) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {3}, {8}, {8}}})};
  const Shape shape{{3}, {3}, {kernel[0]}, {kernel[1]}};
  const auto weight = add_value(graph, {.name = "w", .role = Role::kParameter, .weight = "w", .shape = shape});
  graph.outputs = {add_node(graph, "aten::conv2d.padding",
                            {value("input", 0), value("weight", weight), literal("padding", word),
                             literal("stride", std::vector<int64_t>{stride, stride}),
                             literal("dilation", std::vector<int64_t>{dilation, dilation})},
                            "conv")};
  return graph;
}

TEST(Mode, PaddingByAWordIsTheSameInNumbers) {
  const auto x = at::randn({2, 3, 8, 8});
  struct Case {
    const char* word;
    std::vector<int64_t> kernel;
    int64_t stride, dilation;
    const char* target;
  };
  for (const auto& one : std::vector<Case>{{"valid", {1, 1}, 2, 1, "aten::conv2d"},
                                           {"valid", {3, 3}, 1, 2, "aten::conv2d"},
                                           {"same", {3, 5}, 1, 2, "aten::conv2d"},
                                           {"same", {2, 3}, 1, 1, "aten::conv2d.padding"}}) {
    const auto graph = padded_by(one.word, one.kernel, one.stride, one.dilation);
    EXPECT_EQ(targets(in_mode(graph, Mode::kTrain)), std::vector<std::string>{one.target});
    Weights weights;
    weights.params.insert("w", at::randn({3, 3, one.kernel[0], one.kernel[1]}));
    const auto wanted = at::conv2d(x, weights.params["w"], {}, {one.stride, one.stride}, c10::string_view(one.word),
                                   {one.dilation, one.dilation});
    EXPECT_TRUE(at::allclose(Program(graph).run({x}, weights, Mode::kTrain)[0], wanted, 1e-5, 1e-6)) << one.word;
  }
}

/// DropBlock makes blocks of its noise.
TEST(Mode, NoiseThatIsNoFactorIsRefusedByName) {
  auto graph = rows_graph(3);
  auto noise = add_node(graph, "aten::empty_like", {value("self", 0)}, "empty");
  noise = add_node(graph, "aten::bernoulli_.float", {value("self", noise), literal("p", 0.75)}, "noise");
  const auto rest = add_node(graph, "aten::rsub.Scalar", {value("self", noise), literal("other", 1)}, "rest");
  graph.outputs = {add_node(graph, "aten::mul.Tensor", {value("self", 0), value("other", rest)}, "kept")};
  try {
    in_mode(graph, Mode::kEval);
    FAIL() << "was taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "node rest (aten::rsub.Scalar): takes noise of training other than as a factor: export the network in "
                 "eval mode, without it");
  }
}

/// torch.export writes 0 for None in eval mode.
TEST(Mode, BatchNormWithoutMomentumKeepsTheLastBatchsStatistics) {
  auto graph = small_graph();
  for (auto& node : graph.nodes) {
    if (node.target == "aten::batch_norm") node.set("momentum", 0.0);
  }
  auto weights = small_weights();
  Weights other = clone(weights);
  for (auto& buffer : other.buffers) buffer.value().add_(1);
  const auto x = at::randn({3, 2, 5, 5});
  for (auto* used : {&weights, &other}) Program(graph).run({x}, *used, Mode::kTrain);
  for (const auto& buffer : weights.buffers) {
    const bool counts = !buffer.value().is_floating_point();
    EXPECT_EQ(at::equal(buffer.value(), other.buffers[buffer.key()]), !counts) << buffer.key();
  }
}

}  // namespace
}  // namespace prunex::program
