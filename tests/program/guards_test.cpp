// Calls whose arguments ATen does not check are refused before they read beyond their tensors.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/program/graphs.h"

namespace prunex::program {
namespace {

using testing::HasSubstr;

TEST(Guards, WeightsOfALayerTooSmallForItsInputAreNotReadBeyondTheirEnd) {
  Weights weights;
  for (const auto* name : {"weight", "bias", "mean", "variance"}) weights.params.insert(name, at::ones({2}));
  auto graph = rows_graph(64);
  std::vector<Argument> arguments{value("input", 0)};
  for (const auto& [name, formal] : std::vector<std::pair<std::string, std::string>>{
           {"weight", "weight"}, {"bias", "bias"}, {"mean", "running_mean"}, {"variance", "running_var"}}) {
    arguments.push_back(
        value(formal, add_value(graph, {.name = name, .role = Role::kParameter, .weight = name, .shape = {{2}}})));
  }
  arguments.push_back(literal("momentum", 0.1));
  arguments.push_back(literal("eps", 1e-5));
  graph.outputs = {add_node(graph, "aten::_native_batch_norm_legit_no_training", arguments, "norm")};
  EXPECT_THROW(Program(graph).run({at::ones({1, 64})}, weights, Mode::kEval), c10::Error);
}

TEST(Guards, AttentionWithSharedHeadsHasHeads) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {8}, {1}}})};
  graph.outputs = {add_node(graph, "aten::scaled_dot_product_attention",
                            {value("query", 0), value("key", 0), value("value", 0), literal("enable_gqa", true)}, "y")};
  Weights none;
  EXPECT_THROW(Program(graph).run({at::ones({0, 8, 1})}, none, Mode::kEval), c10::Error);
}

TEST(Guards, IntegersAreNotDividedTowardsZero) {
  for (const bool integers : {true, false}) {
    Graph graph;
    const auto dtype = integers ? at::kLong : at::kFloat;
    graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .dtype = dtype, .shape = {{1, true}, {8}}})};
    graph.outputs = {add_node(graph, "aten::div.Tensor_mode",
                              {value("self", 0), literal("other", -1), literal("rounding_mode", "trunc")}, "y")};
    const auto x = integers ? at::full({1, 8}, std::numeric_limits<int64_t>::min(), at::kLong) : at::ones({1, 8});
    Weights none;
    if (integers) {
      EXPECT_THROW(Program(graph).run({x}, none, Mode::kEval), c10::Error);
    } else {
      EXPECT_TRUE(at::equal(Program(graph).run({x}, none, Mode::kEval)[0], -x));
    }
  }
}

TEST(Guards, LengthsOfDirectionsHaveTheirShape) {
  Weights weights;
  weights.params.insert("v", at::ones({64, 64}));
  weights.params.insert("g", at::ones({1, 1}));
  Graph graph = rows_graph(64);
  for (const auto* name : {"v", "g"}) {
    add_value(graph, {.name = name, .role = Role::kParameter, .weight = name, .shape = {{1}, {1}}});
  }
  const auto weight = add_node(graph, "aten::_weight_norm", {value("v", 1), value("g", 2)}, "w");
  graph.outputs = {add_node(graph, "aten::linear", {value("input", 0), value("weight", weight)}, "y")};
  EXPECT_THROW(Program(graph).run({at::ones({1, 64})}, weights, Mode::kEval), c10::Error);
}

/// A recurrent layer of 3 hidden units, whose weight `wrong` has rows for 1.
std::string error_of_recurrent(const std::string& target, int64_t gates, int wrong, at::ScalarType type = at::kFloat) {
  Weights weights;
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {5}, {4}}})};
  const auto state = add_value(graph, {.name = "h", .role = Role::kParameter, .weight = "h", .shape = {{1}, {2}, {3}}});
  weights.params.insert("h", at::zeros({1, 2, 3}));
  std::vector<ValueId> params;
  const int64_t rows = 3 * gates;
  for (int i = 0; i < 4; ++i) {
    const auto name = "w" + std::to_string(i);
    std::vector<int64_t> sizes{i == wrong ? gates : rows};
    if (i < 2) sizes.push_back(i == 0 ? 4 : 3);
    params.push_back(add_value(graph, {.name = name, .role = Role::kParameter, .weight = name}));
    weights.params.insert(name, at::ones(sizes));
  }
  const bool lstm = target == "aten::lstm.input";
  std::vector<Argument> arguments{value("input", 0),           lstm ? values("hx", {state, state}) : value("hx", state),
                                  values("params", params),    literal("has_biases", true),
                                  literal("num_layers", 1),    literal("dropout", 0.0),
                                  literal("train", false),     literal("bidirectional", false),
                                  literal("batch_first", true)};
  graph.outputs = {add_node(graph, target, arguments, "y")};
  try {
    Program(graph).run({at::ones({2, 5, 4}, type)}, weights, Mode::kEval);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(Guards, WeightsOfRecurrentLayersHaveTheSizesOfTheirStates) {
  for (const auto& [target, gates] : std::vector<std::pair<std::string, int64_t>>{
           {"aten::lstm.input", 4}, {"aten::gru.input", 3}, {"aten::rnn_tanh.input", 1}}) {
    EXPECT_EQ(error_of_recurrent(target, gates, -1), "no error");
    for (int wrong = 0; wrong < 4 && gates > 1; ++wrong) {
      EXPECT_THAT(error_of_recurrent(target, gates, wrong), HasSubstr("wanted [")) << target << " " << wrong;
    }
  }
}

/// For as long as it lives.
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

// What linear layers before them make under autocast is of another type than their weights.
TEST(Guards, RecurrentLayersTakeInputsOfTheTypeOfAutocast) {
  for (const auto& [target, gates] : std::vector<std::pair<std::string, int64_t>>{
           {"aten::lstm.input", 4}, {"aten::gru.input", 3}, {"aten::rnn_tanh.input", 1}}) {
    EXPECT_THAT(error_of_recurrent(target, gates, -1, at::kBFloat16), HasSubstr("the input BFloat16")) << target;
    const Autocast autocast;
    EXPECT_EQ(error_of_recurrent(target, gates, -1, at::kBFloat16), "no error");
  }
}

TEST(Guards, ComputedSizesDoNotOverflow) {
  for (const auto* operation : {"sym::mul", "sym::add", "sym::sub", "sym::floordiv"}) {
    auto graph = rows_graph(2);
    const auto batch = add_size(graph, "aten::sym_size.int", {value("self", 0), literal("dim", 0)});
    const auto least = add_size(graph, "sym::sub", {value("a", batch), literal("b", INT64_MAX)});
    const bool divides = std::string(operation) == "sym::floordiv";
    const auto size = add_size(graph, operation,
                               {value("a", least), literal("b", divides                                ? -1
                                                                : std::string(operation) == "sym::add" ? INT64_MIN
                                                                                                       : INT64_MAX)});
    graph.outputs = {add_node(graph, "aten::add.Tensor", {value("self", 0), value("other", size)}, "sum")};
    Weights none;
    EXPECT_THROW(Program(graph).run({at::ones({1, 2})}, none, Mode::kEval), c10::Error) << operation;
  }
}

}  // namespace
}  // namespace prunex::program
