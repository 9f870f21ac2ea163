// What is said of networks that do not train, or cannot be cut, as one would expect.
#include "prunex/train/network.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/train/remarks.h"
#include "tests/scratch.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using program::Argument;
using program::Builder;
using program::Graph;
using program::Node;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// What torch.export leaves of batch norm in eval mode after run_decompositions().
program::Model with_decomposed_norms(const program::Model& model) {
  Graph graph = model.program.graph();
  for (Node& node : graph.nodes) {
    if (node.target != "aten::batch_norm") continue;
    node.target = "aten::_native_batch_norm_legit_no_training";
    std::erase_if(node.arguments, [](const Argument& a) { return a.name == "training" || a.name == "cudnn_enabled"; });
    node.outputs = {node.outputs[0], program::kNoValue, program::kNoValue};
  }
  return {program::Program(graph), model.weights};
}

/// The same after a second decomposition, for one layer: (x - mean) * (var + eps)^-0.5.
program::Model with_arithmetic() {
  program::Model model = small_network();
  Graph graph = model.program.graph();
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (node.target != "aten::batch_norm" || node.find("running_mean")->values[0] == program::kNoValue) {
      nodes.push_back(node);
      continue;
    }
    const auto view = [&](const char* argument) {
      const auto id = static_cast<program::ValueId>(graph.values.size());
      graph.values.push_back({.name = "view_" + std::to_string(id)});
      nodes.push_back({.target = "aten::view",
                       .arguments = {Builder::tensor("self", node.find(argument)->values[0]),
                                     Builder::literal("size", std::vector<int64_t>{-1, 1, 1})},
                       .outputs = {id}});
      return id;
    };
    const auto mean = view("running_mean"), var = view("running_var");
    const auto centred = static_cast<program::ValueId>(graph.values.size());
    graph.values.push_back({.name = "centred_" + std::to_string(centred)});
    nodes.push_back(
        {.target = "aten::sub.Tensor",
         .arguments = {Builder::tensor("self", node.find("input")->values[0]), Builder::tensor("other", mean)},
         .outputs = {centred}});
    nodes.push_back({.target = "aten::div.Tensor",
                     .arguments = {Builder::tensor("self", centred), Builder::tensor("other", var)},
                     .outputs = node.outputs});
  }
  graph.nodes = std::move(nodes);
  return {program::Program(graph), model.weights};
}

/// conv1 - relu - mean - `cut_off` - fc.
program::Model detached(bool before_head) {
  Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.mean(builder.relu(builder.conv2d("conv1", x, {.out = 6, .kernel = 3, .padding = 1})), {2, 3});
  const auto detach = [&](program::ValueId y) {
    return builder.call("aten::detach", {Builder::tensor("self", y)}, builder.shape(y));
  };
  if (before_head) x = detach(x);
  x = builder.linear("fc", x, {.out = kClasses});
  return std::move(builder).finish(before_head ? x : detach(x));
}

/// The head's weight is among the buffers.
program::Model with_fixed_head() {
  program::Model model = small_network();
  Graph graph = model.program.graph();
  for (auto& value : graph.values) {
    if (value.weight == "fc.weight") value.role = program::Role::kBuffer;
  }
  Weights weights;
  weights.buffers = model.weights.buffers;
  for (const auto& theta : model.weights.params) {
    if (theta.key() == "fc.weight") {
      weights.buffers.insert(theta.key(), theta.value().detach());
    } else {
      weights.params.insert(theta.key(), theta.value());
    }
  }
  return {program::Program(graph), weights};
}

TEST(Remarks, AreNoneForAUsualNetwork) {
  const program::Model model = small_network();
  EXPECT_THAT(training_remarks(model, "net.pt2"), IsEmpty());
  EXPECT_EQ(nothing_to_cut(model.program.graph(), "net.pt2"), "");
}

TEST(Remarks, LeaveWeightsStatisticsAndGradientsAsTheyAre) {
  const program::Model model = small_network();
  for (auto& theta : model.weights.params) theta.value().set_requires_grad(true);
  const at::Tensor mean = model.weights.buffers["bn1.running_mean"].clone();
  training_remarks(model, "net.pt2");
  EXPECT_TRUE(at::equal(model.weights.buffers["bn1.running_mean"], mean));
  for (const auto& theta : model.weights.params) EXPECT_FALSE(theta.value().grad().defined()) << theta.key();
}

TEST(Remarks, NameBatchNormThatWasDecomposedInEvalMode) {
  EXPECT_THAT(training_remarks(with_decomposed_norms(small_network()), "net.pt2"),
              ElementsAre(AllOf(HasSubstr("net.pt2: batch norm of bn1 and bn2 keeps the statistics of the file"),
                                HasSubstr("aten::_native_batch_norm_legit_no_training"))));
}

TEST(Remarks, NameBatchNormThatIsArithmetic) {
  EXPECT_THAT(
      training_remarks(with_arithmetic(), "net.pt2"),
      testing::Contains(AllOf(HasSubstr("batch norm of bn1 and bn2 keeps the statistics"), HasSubstr("aten::view"))));
}

TEST(Remarks, NameAHeadThatIsNoParameter) {
  EXPECT_THAT(training_remarks(with_fixed_head(), "net.pt2"),
              ElementsAre("net.pt2: its last layer does not train: 'fc.weight' is a buffer, not a parameter"));
}

TEST(Remarks, NameParametersThatGetNoGradient) {
  EXPECT_THAT(training_remarks(detached(true), "net.pt2"),
              ElementsAre("net.pt2: no gradient leads to conv1.weight: it stays as in the file"));
}

TEST(Remarks, RefuseANetworkOfWhichNothingTrains) {
  EXPECT_THAT([] { training_remarks(detached(false), "net.pt2"); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("net.pt2: nothing can train"), HasSubstr("any of its 3 parameters"))));
}

TEST(Remarks, SayThatAllGradientsAreZero) {
  Builder builder(3);
  const auto x = builder.flatten(builder.input("x", {3, kSide, kSide}));
  const auto y = builder.linear("fc", x, {.out = kClasses});
  const auto logits = builder.call("aten::round", {Builder::tensor("self", y)}, builder.shape(y));
  EXPECT_THAT(training_remarks(std::move(builder).finish(logits), "net.pt2"),
              ElementsAre("net.pt2: all gradients are 0 on two images of noise: nothing may train"));
}

TEST(Remarks, SayWhyNothingCanBeCut) {
  Builder builder(3);
  const auto x = builder.flatten(builder.input("x", {3, kSide, kSide}));
  const auto logits = builder.linear("fc", x, {.out = kClasses});
  const program::Model linear = std::move(builder).finish(logits);
  EXPECT_EQ(nothing_to_cut(linear.program.graph(), "net.pt2"),
            "net.pt2: nothing can be cut: all its channels are the input's or the output's");
}

TEST(Remarks, NameTheOperationThatKeepsChannels) {
  Builder builder(3);
  auto x = builder.conv2d("conv1", builder.input("x", {3, kSide, kSide}), {.out = 6, .kernel = 3, .padding = 1});
  x = builder.call("aten::cumsum", {Builder::tensor("self", x), Builder::literal("dim", 1)}, builder.shape(x));
  const auto logits = builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses});
  const program::Model model = std::move(builder).finish(logits);
  EXPECT_THAT(
      nothing_to_cut(model.program.graph(), "net.pt2"),
      AllOf(HasSubstr("nothing can be cut: conv1: "), HasSubstr("aten::cumsum"), HasSubstr("orders positions")));
}

class LoadNetworkRemarks : public testing::Test {
 protected:
  std::vector<std::string> remarks_of(const program::Model& model, const data::Dataset& images = noise_images(4)) {
    options_.model = scratch_ / "net.pt2";
    program::write_pt2(options_.model, model);
    return load_network(options_, images).remarks;
  }

  const tests::Scratch scratch_;
  TrainOptions options_;
};

TEST_F(LoadNetworkRemarks, NameParametersThatTheFileFreezes) {
  program::Model model = small_network();
  for (auto& theta : model.weights.params) {
    theta.value() = theta.value().detach().set_requires_grad(!theta.key().starts_with("conv"));
  }
  EXPECT_THAT(remarks_of(model),
              ElementsAre(HasSubstr("(requires_grad is False), but trained: conv1.weight and conv2.weight")));
}

TEST_F(LoadNetworkRemarks, SayThatNothingCanBeCutOnlyWhereSomethingShouldBe) {
  Builder builder(3);
  const auto x = builder.flatten(builder.input("x", {3, kSide, kSide}));
  const auto logits = builder.linear("fc", x, {.out = kClasses});
  const program::Model linear = std::move(builder).finish(logits);
  EXPECT_THAT(remarks_of(linear), ElementsAre(HasSubstr("nothing can be cut")));
  options_.groups = "none";
  EXPECT_THAT(remarks_of(linear), IsEmpty());
  options_.pruning.target = "ratio=0.5";
  EXPECT_THAT(remarks_of(linear), ElementsAre(HasSubstr("nothing can be cut")));
}

TEST_F(LoadNetworkRemarks, SayThatOutputsStandForNoClass) {
  auto images = noise_images(4);
  images.classes = 2;
  static_assert(kClasses == 5);
  EXPECT_THAT(remarks_of(small_network(), images),
              ElementsAre(HasSubstr("it has 5 outputs, noise has 2 classes: none stands for output 2 … 4")));
}

TEST_F(LoadNetworkRemarks, SayThatTheChosenGroupsFindNothing) {
  options_.groups = "coupled-inner";
  Builder builder(3);  // one residual stream, which coupled-inner leaves alone
  auto x = builder.conv2d("conv1", builder.input("x", {3, kSide, kSide}), {.out = 6, .kernel = 3, .padding = 1});
  x = builder.add(x, builder.conv2d("conv2", x, {.out = 6, .kernel = 3, .padding = 1}));
  const auto logits = builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses});
  EXPECT_THAT(remarks_of(std::move(builder).finish(logits)),
              ElementsAre(HasSubstr("nothing can be cut: `groups` coupled-inner finds no channels in it")));
}

TEST(SomeOf, NamesAFew) {
  EXPECT_EQ(some_of({"a"}), "a");
  EXPECT_EQ(some_of({"a", "b"}), "a and b");
  EXPECT_EQ(some_of({"a", "b", "c", "d"}), "a, b, c and d");
  EXPECT_EQ(some_of({"a", "b", "c", "d", "e"}), "a, b, c and 2 others");
}

}  // namespace
}  // namespace prunex::train
