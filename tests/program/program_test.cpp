#include "prunex/program/program.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "tests/program/graphs.h"

namespace prunex::program {
namespace {

using testing::HasSubstr;

constexpr auto kBothModes = {Mode::kTrain, Mode::kEval};

at::Tensor small_input() {
  return at::randn({3, 2, 5, 5});
}

TEST(Program, RunsAGraphLikeTheSameCallsByHand) {
  auto weights = small_weights();
  const auto x = small_input();
  const Program program(small_graph());
  for (const auto mode : kBothModes) {
    auto copy = clone(weights);
    const auto expected = small_by_hand(x, copy, mode == Mode::kTrain);
    const auto got = program.run({x}, weights, mode);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(at::equal(got[0], expected));
    for (const auto& buffer : copy.buffers) EXPECT_TRUE(at::equal(weights.buffers[buffer.key()], buffer.value()));
  }
}

TEST(Program, GradientsEqualThoseOfTheSameCalls) {
  auto weights = small_weights(), copy = clone(weights);
  const auto x = small_input();
  small_by_hand(x, copy, true).square().sum().backward();
  Program(small_graph()).run({x}, weights, Mode::kTrain)[0].square().sum().backward();
  for (const auto& item : copy.params) {
    EXPECT_TRUE(at::equal(weights.params[item.key()].grad(), item.value().grad())) << item.key();
  }
}

TEST(Program, EvaluationLeavesBuffersAlone) {
  auto weights = small_weights();
  const auto before = clone(weights);
  Program(small_graph()).run({small_input()}, weights, Mode::kEval);
  for (const auto& item : before.buffers) {
    EXPECT_TRUE(at::equal(weights.buffers[item.key()], item.value())) << item.key();
  }
}

TEST(Program, FindsWeightsInAnyOrder) {
  auto weights = small_weights();
  Weights reversed;
  for (size_t i = weights.params.size(); i-- > 0;)
    reversed.params.insert(weights.params[i].key(), weights.params[i].value());
  for (size_t i = weights.buffers.size(); i-- > 0;) {
    reversed.buffers.insert(weights.buffers[i].key(), weights.buffers[i].value());
  }
  const auto x = small_input();
  const Program program(small_graph());
  EXPECT_TRUE(at::equal(program.run({x}, weights, Mode::kEval)[0], program.run({x}, reversed, Mode::kEval)[0]));
}

TEST(Program, TiedWeightsAreOneTensor) {
  auto graph = rows_graph(4);
  const auto first = add_value(graph, {.name = "p_a", .role = Role::kParameter, .weight = "a", .shape = {{4}}});
  const auto second = add_value(graph, {.name = "p_b", .role = Role::kParameter, .weight = "b", .shape = {{4}}});
  graph.aliases = {{"b", "a"}};
  const auto once = add_node(graph, "aten::mul.Tensor", {value("self", 0), value("other", first)}, "once");
  graph.outputs = {add_node(graph, "aten::mul.Tensor", {value("self", once), value("other", second)}, "twice")};
  Weights weights;
  weights.params.insert("a", at::full({4}, 3.0).set_requires_grad(true));
  const auto y = Program(graph).run({at::ones({1, 4})}, weights, Mode::kTrain)[0];
  y.sum().backward();
  EXPECT_TRUE(at::equal(y, at::full({1, 4}, 9.0)));
  EXPECT_TRUE(at::equal(weights.params["a"].grad(), at::full({4}, 6.0)));  // d(a * a) / da = 2a
}

TEST(Program, NumbersDoNotPromoteTensors) {
  auto graph = rows_graph(2);
  auto y = add_node(graph, "aten::mul.Tensor", {value("self", 0), literal("other", 0.5)}, "half");
  graph.outputs = {add_node(graph, "aten::add.Tensor", {value("self", y), literal("other", 1)}, "more")};
  Weights none;
  for (const auto dtype : {at::kFloat, at::kHalf, at::kDouble}) {
    const auto got = Program(graph).run({at::full({1, 2}, 3, dtype)}, none, Mode::kEval)[0];
    EXPECT_TRUE(at::equal(got, at::full({1, 2}, 2.5, dtype)));
  }
}

TEST(Program, ConvertsLiteralsToTheSchemasTypes) {
  auto graph = rows_graph(4);
  const auto y = add_node(graph, "aten::dropout", {value("input", 0), literal("p", 0), literal("train", true)}, "drop");
  const auto image =
      add_node(graph, "aten::view", {value("self", y), literal("size", std::vector<int64_t>{-1, 1, 2, 2})}, "image");
  graph.outputs = {add_node(graph, "aten::avg_pool2d", {value("self", image), literal("kernel_size", 2)}, "pool")};
  Weights none;
  const auto x = at::arange(4, at::kFloat).view({1, 4});
  EXPECT_EQ(Program(graph).run({x}, none, Mode::kTrain)[0].item<float>(), 1.5f);
}

TEST(Program, ReadsListsAndMissingTensors) {
  auto graph = rows_graph(4);
  const auto order = add_value(
      graph, {.name = "order", .role = Role::kConstant, .weight = "order", .dtype = at::kLong, .shape = {{4}}});
  graph.constants.emplace("order", at::tensor({3, 2, 1, 0}));
  const auto index =
      add_node(graph, "aten::index.Tensor", {value("self", 0), values("indices", {kNoValue, order})}, "index");
  const auto left = add_value(graph, {.name = "left"}), right = add_value(graph, {.name = "right"});
  graph.nodes.push_back({.target = "aten::chunk",
                         .arguments = {value("self", index), literal("chunks", 4), literal("dim", 1)},
                         .outputs = {left, kNoValue, kNoValue, right},
                         .output_is_list = true});
  graph.outputs = {add_node(graph, "aten::cat", {values("tensors", {right, left}), literal("dim", 1)}, "cat")};
  Weights none;
  const auto x = at::arange(8, at::kFloat).view({2, 4});
  EXPECT_TRUE(at::equal(Program(graph).run({x}, none, Mode::kEval)[0],
                        at::tensor({0., 3., 4., 7.}).to(at::kFloat).view({2, 2})));
}

TEST(Program, ComputesSizesFromTheBatch) {
  auto graph = rows_graph(4);
  const auto batch = add_size(graph, "aten::sym_size.int", {value("self", 0), literal("dim", 0)});
  const auto twice = add_size(graph, "sym::mul", {value("a", batch), literal("b", 2)});
  const auto more = add_size(graph, "sym::add", {value("a", twice), literal("b", 5)});
  const auto less = add_size(graph, "sym::sub", {value("a", more), literal("b", 1)});
  const auto half = add_size(graph, "sym::floordiv", {value("a", less), literal("b", 2)});  // batch + 2
  const Argument sizes{.name = "size", .kind = Argument::Kind::kInts, .values = {twice, kNoValue}, .ints = {0, 2}};
  const auto view = add_node(graph, "aten::view", {value("self", 0), sizes}, "view");
  graph.outputs = {add_node(graph, "aten::add.Tensor", {value("self", view), value("other", half)}, "add")};
  Weights none;
  const auto got = Program(graph).run({at::zeros({3, 4})}, none, Mode::kEval)[0];
  EXPECT_TRUE(at::equal(got, at::full({6, 2}, 5.0)));
}

// Counts the bytes that the CPU allocator has handed out on this thread since it was made.
class MemoryMeter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak = std::max(peak, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t peak = 0;

 private:
  int64_t now_ = 0;
};

TEST(Program, FreesValuesAfterTheirLastUse) {
  constexpr int64_t kRow = 1 << 18;
  auto graph = rows_graph(kRow);
  ValueId y = 0;
  for (int i = 0; i < 12; ++i) {
    const auto wide = add_node(graph, "aten::relu", {value("self", y)}, "relu" + std::to_string(i));
    y = add_node(graph, "aten::cat", {values("tensors", {wide}), literal("dim", 1)}, "cat" + std::to_string(i));
    add_node(graph, "aten::neg", {value("self", y)}, "unused" + std::to_string(i));
  }
  graph.outputs = {y};
  const Program program(graph);
  const auto x = at::ones({1, kRow});
  Weights none;
  const auto meter = std::make_shared<MemoryMeter>();
  {
    c10::NoGradGuard no_grad;
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    program.run({x}, none, Mode::kTrain);
  }
  // An operation's input and output; the input x belongs to the caller.
  EXPECT_GE(meter->peak, 2 * kRow * 4);
  EXPECT_LT(meter->peak, 2 * kRow * 4 + 100000);
}

TEST(Program, RunsInSeveralThreadsAtOnce) {
  const Program program(small_graph());
  const auto x = small_input();
  constexpr int kThreads = 4, kSteps = 20;
  auto reference = small_weights();
  std::vector<Weights> weights;
  for (int i = 0; i < kThreads; ++i) weights.push_back(clone(reference));
  const auto train = [&](Weights& mine) {
    for (int step = 0; step < kSteps; ++step) program.run({x}, mine, Mode::kTrain)[0].square().sum().backward();
  };
  std::vector<std::thread> threads;
  for (auto& mine : weights) threads.emplace_back(train, std::ref(mine));
  for (auto& thread : threads) thread.join();
  train(reference);
  for (auto& mine : weights) {
    for (const auto& item : reference.params) {
      EXPECT_TRUE(at::equal(mine.params[item.key()].grad(), item.value().grad())) << item.key();
    }
    for (const auto& item : reference.buffers) EXPECT_TRUE(at::equal(mine.buffers[item.key()], item.value()));
  }
}

struct BadGraph {
  const char* name;
  std::function<void(Graph&)> spoil;
  const char* message;
};

class BadProgram : public testing::TestWithParam<BadGraph> {};

TEST_P(BadProgram, IsRefusedWithTheNodesName) {
  auto graph = small_graph();
  GetParam().spoil(graph);
  try {
    Program program(graph);
    FAIL() << "was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

Argument& argument(Graph& graph, const std::string& target, const std::string& name) {
  for (auto& node : graph.nodes) {
    if (node.target != target) continue;
    for (auto& candidate : node.arguments) {
      if (candidate.name == name) return candidate;
    }
  }
  throw std::out_of_range(name);
}

/// A constant goes through an operation, whose result is written to.
void write_behind(Graph& graph, const std::string& target, const std::string& operand, std::vector<Argument> others) {
  const auto table =
      add_value(graph, {.name = "c_table", .role = Role::kConstant, .weight = "table", .shape = {{2}, {2}, {2}, {2}}});
  graph.constants.emplace("table", at::zeros({2, 2, 2, 2}));
  others.insert(others.begin(), operand == "tensors" ? values(operand, {table}) : value(operand, table));
  const auto shown = add_node(graph, target, std::move(others), "shown");
  graph.nodes.back().output_is_list = target == "aten::meshgrid";
  add_node(graph, "aten::add_.Tensor", {value("self", shown), literal("other", 1)}, "spoiled");
}

const std::vector<Argument> kDropout{literal("p", 0.5), literal("train", true)};

INSTANTIATE_TEST_SUITE_P(
    Graphs, BadProgram,
    testing::Values(
        BadGraph{"UnknownOperation", [](Graph& g) { g.nodes[0].target = "aten::conv2d_of_mine"; }, "no such operation"},
        BadGraph{"UnknownOverload", [](Graph& g) { g.nodes[0].target = "aten::conv2d.mine"; },
                 "conv (aten::conv2d.mine)"},
        BadGraph{"UnknownArgument", [](Graph& g) { g.nodes[0].arguments.push_back(literal("colour", 1)); },
                 "unknown to the schema"},
        BadGraph{"DoubledArgument", [](Graph& g) { g.nodes[0].arguments.push_back(value("input", 0)); },
                 "'input' is given twice"},
        BadGraph{"MissingArgument", [](Graph& g) { g.nodes[0].arguments.erase(g.nodes[0].arguments.begin()); },
                 "'input' is missing"},
        BadGraph{"WrongLiteral", [](Graph& g) { argument(g, "aten::conv2d", "padding").literal = 0.5; },
                 "'padding' is float, wanted"},
        BadGraph{"TensorForAFlag", [](Graph& g) { argument(g, "aten::batch_norm", "training") = value("training", 0); },
                 "'training' is a tensor, wanted bool"},
        BadGraph{"UseBeforeDefinition", [](Graph& g) { std::swap(g.nodes[0], g.nodes[2]); },
                 "'conv' is used by node norm"},
        BadGraph{"DoubleDefinition", [](Graph& g) { g.nodes[1].outputs = g.nodes[0].outputs; },
                 "defines value 'conv' again"},
        BadGraph{"NoOutput", [](Graph& g) { g.outputs.clear(); }, "no output"},
        BadGraph{"IdOutOfRange", [](Graph& g) { g.outputs = {999}; }, "names value 999"},
        BadGraph{"TooManyOutputs", [](Graph& g) { g.nodes[0].outputs.push_back(add_value(g, {.name = "second"})); },
                 "has 2 outputs"},
        BadGraph{"WriteToAParameter",
                 [](Graph& g) {
                   add_node(g, "aten::mul_.Tensor", {value("self", 0), literal("other", 2)}, "spoiled");
                 },
                 "writes to 'conv.weight' in place"},
        BadGraph{"WriteToAViewOfABuffer",
                 [](Graph& g) {
                   const auto view = add_node(g, "aten::view",
                                              {value("self", 5), literal("size", std::vector<int64_t>{2, 2})}, "view");
                   add_node(g, "aten::add_.Tensor", {value("self", view), literal("other", 1)}, "spoiled");
                 },
                 "writes to 'bn.running_mean' in place"},
        BadGraph{"WriteToADroppedOutConstant", [](Graph& g) { write_behind(g, "aten::dropout", "input", kDropout); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAConstantOfDroppedOutFeatures",
                 [](Graph& g) { write_behind(g, "aten::feature_dropout", "input", kDropout); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAConstantOfAlphaDropout",
                 [](Graph& g) { write_behind(g, "aten::alpha_dropout", "input", kDropout); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAConstantOfAType",
                 [](Graph& g) { write_behind(g, "aten::type_as", "self", {value("other", 0)}); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAConstantOfAnEquation",
                 [](Graph& g) { write_behind(g, "aten::einsum", "tensors", {literal("equation", "ab->ba")}); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAConstantOfAGrid", [](Graph& g) { write_behind(g, "aten::meshgrid", "tensors", {}); },
                 "writes to 'table' in place"},
        BadGraph{"WriteToAShuffledConstant",
                 [](Graph& g) { write_behind(g, "aten::channel_shuffle", "self", {literal("groups", 1)}); },
                 "writes to 'table' in place"},
        BadGraph{"StatisticsOutsideTheStateDict",
                 [](Graph& g) {
                   g.values[5].role = Role::kConstant;
                   g.constants.emplace("bn.running_mean", at::zeros({4}));
                 },
                 "'bn.running_mean' are no buffer of the state dict"},
        BadGraph{"StatisticsThatAreAView",
                 [](Graph& g) {
                   const auto view =
                       add_node(g, "aten::view", {value("self", 5), literal("size", std::vector<int64_t>{4})}, "view");
                   std::rotate(g.nodes.begin(), g.nodes.end() - 1, g.nodes.end());
                   argument(g, "aten::batch_norm", "running_mean") = value("running_mean", view);
                 },
                 "the statistics 'view' are no buffer of the state dict"},
        BadGraph{"SizeOfANumber",
                 [](Graph& g) {
                   add_size(g, "aten::sym_size.int", {literal("self", 3), literal("dim", 0)});
                 },
                 "argument 'self' is not a tensor"},
        BadGraph{"MissingConstant",
                 [](Graph& g) { add_value(g, {.name = "c", .role = Role::kConstant, .weight = "table"}); },
                 "lacks its constant 'table'"}),
    [](const auto& info) { return info.param.name; });

std::string error_of_run(const at::Tensor& x, Weights weights) {
  try {
    Program(small_graph()).run({x}, weights, Mode::kEval);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(Program, SaysWhichInputOrWeightIsWrong) {
  EXPECT_THAT(error_of_run(at::zeros({1, 3, 5, 5}), small_weights()),
              HasSubstr("input 'x' is 1x3x5x5, wanted Bx2x5x5"));
  EXPECT_THAT(error_of_run(at::zeros({2, 5, 5}), small_weights()), HasSubstr("input 'x' is 2x5x5"));
  EXPECT_THAT(error_of_run(small_input(), Weights()), HasSubstr("the weights lack 'conv.weight'"));
  auto weights = small_weights();
  weights.params["fc.weight"] = at::zeros({3, 9});
  EXPECT_THAT(error_of_run(small_input(), weights), HasSubstr("in node linear (aten::linear)"));
  EXPECT_THROW(Program(small_graph()).run({}, weights, Mode::kEval), c10::Error);
}

}  // namespace
}  // namespace prunex::program
