// Graphs whose recorded shapes and numbers do not fit are refused in one line that names the node.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "prunex/channels/analysis.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/importance.h"
#include "prunex/prune/pruner.h"
#include "tests/program/graphs.h"
#include "tests/program/hostile.h"
#include "tests/texts.h"

namespace prunex::prune {
namespace {

using program::Graph;
using program::literal;
using program::Records;
using program::ValueId;
using testing::HasSubstr;

std::string error_of_groups(const Graph& graph) {
  const std::string text = tests::message([&] { channels::Analysis{graph}; });
  return text.substr(0, text.find('\n'));
}

/// A convolution of 4 channels with a weight of so many rows, whose input is recorded with 8 x 8 positions.
Graph convolution(int64_t groups, int64_t rows, const std::string& target) {
  Graph graph;
  const auto x =
      program::add_value(graph, {.name = "x", .role = program::Role::kInput, .shape = {{1, true}, {4}, {8}, {8}}});
  const auto weight = program::add_value(
      graph,
      {.name = "w", .role = program::Role::kParameter, .weight = "conv.weight", .shape = {{rows}, {2}, {3}, {3}}});
  graph.inputs = {x};
  graph.outputs = {program::add_node(
      graph, target, {program::value("input", x), program::value("weight", weight), literal("groups", groups)}, "y")};
  graph.values[graph.outputs[0]].shape = {{1, true}, {6}, {6}, {6}};
  return graph;
}

TEST(HostileGraph, GroupsThatDoNotDivideTheChannelsAreRefused) {
  for (const int64_t groups : {5, 7, 100, INT32_MAX}) {
    EXPECT_THAT(error_of_groups(convolution(groups, 6, "aten::conv2d")), HasSubstr("groups do not divide")) << groups;
    EXPECT_THAT(error_of_groups(convolution(groups, 4, "aten::conv_transpose2d.input")),
                HasSubstr("groups do not divide"));
  }
  EXPECT_EQ(error_of_groups(convolution(2, 6, "aten::conv2d")), "no exception");
}

TEST(HostileGraph, OfAProductOfTwoWeightsIsAnalysed) {
  Graph graph = program::rows_graph(4);
  std::vector<ValueId> weights;
  for (const char* name : {"a", "b"}) {
    weights.push_back(program::add_value(
        graph, {.name = name, .role = program::Role::kParameter, .weight = name, .shape = {{4}, {4}}}));
  }
  const auto product = program::add_node(
      graph, "aten::matmul", {program::value("self", weights[0]), program::value("other", weights[1])}, "product");
  graph.values[product].shape = {{4}, {4}};
  graph.outputs = {
      program::add_node(graph, "aten::matmul", {program::value("self", 0), program::value("other", product)}, "y")};
  graph.values[graph.outputs[0]].shape = {{1, true}, {4}};
  EXPECT_EQ(error_of_groups(graph), "no exception");
}

TEST(HostileGraph, DeepChainsDoNotExhaustTheStack) {
  Graph graph = program::rows_graph(4);
  ValueId last = 0;
  for (int i = 0; i < 50000; ++i) {
    last = program::add_node(graph, "aten::relu", {program::value("self", last)}, "relu_" + std::to_string(i));
    graph.values[last].shape = {{1, true}, {4}};
  }
  graph.outputs = {program::add_node(graph, "aten::sum.dim_IntList",
                                     {program::value("self", last), literal("dim", std::vector<int64_t>{1})}, "y")};
  graph.values[graph.outputs[0]].shape = {{1, true}};
  EXPECT_EQ(error_of_groups(graph), "no exception");
}

TEST(HostileGraph, ShapesThatDoNotFitTheirOperationsNameTheNode) {
  Graph graph = program::rows_graph(4);
  graph.outputs = {program::add_node(
      graph, "aten::permute", {program::value("self", 0), literal("dims", std::vector<int64_t>{5, 9})}, "turned")};
  graph.values[graph.outputs[0]].shape = {{4}, {1, true}};
  EXPECT_EQ(error_of_groups(graph),
            "node turned (aten::permute): the shapes that are recorded do not fit its operation");
}

void analyse(const std::string& bytes) {
  const program::Model model = program::parse_pt2(bytes, "guest.pt2");
  const Graph& graph = model.program.graph();
  program::macs(graph);
  for (const channels::GroupOptions options :
       {channels::GroupOptions{}, channels::GroupOptions{.statistics = true, .heads = true}}) {
    channels::Analysis{graph, options};
  }
  Pruner pruner(model, {});
  pruner.prune(*make_importance(importance_named("l2"), graph), {.share = 0.5});
  pruner.result();
}

// Whatever a file says of its shapes, analysis and cuts end with a result or with one line.
TEST(HostileGraph, RewrittenAtRandomNeverEndsTheProcess) {
  at::set_num_threads(1);
  std::mt19937 random(4);
  int analysed = 0, refused = 0;
  for (const char* name : {"lstm_linear", "group_conv", "tied_linear_module_weight"}) {
    const Records records = program::records_of(PRUNEX_TEST_DATA "/prune/cases/" + std::string(name) + ".pt2");
    for (int i = 0; i < 150; ++i) {
      Records mutated = records;
      program::edit(mutated, "models/model.json", [&](nlohmann::json& document) {
        auto& module = document["graph_module"];
        const std::array parts{&module["graph"]["tensor_values"], &module["graph"]["nodes"], &module["signature"]};
        program::mutate(*parts[i % 3], random);
      });
      try {
        analyse(program::pack(mutated));
        ++analysed;
      } catch (const std::exception& error) {
        const std::string text = error.what();
        EXPECT_FALSE(program::speaks_foreign(text.substr(0, text.find('\n')))) << name << " " << i << ": " << text;
        ++refused;
      }
    }
  }
  EXPECT_GT(analysed, 30);
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace prunex::prune
