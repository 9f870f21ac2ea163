// Analytic counts against those of networks that were really cut.
#include "prunex/prune/cost.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "tests/channels/cut_check.h"
#include "tests/program/graphs.h"

namespace prunex::prune {
namespace {

using channels::check_cut;
using channels::CutCheck;
using channels::Keep;
using program::Builder;
using program::Graph;
using program::Model;
using program::ValueId;

void expect_counts_of_cut_networks(const Model& model, const at::Tensor& images) {
  const channels::Analysis analysis(model.program);
  const auto& groups = analysis.removable();
  const Cost cost = cost_of(analysis, Counting::kMacs);
  EXPECT_EQ(cost.parameters(all_units(groups)), program::parameter_count(model.weights));
  EXPECT_EQ(cost.macs(all_units(groups)), program::macs(model.program.graph()));
  for (const Keep keep : {Keep::kHalf, Keep::kOne}) {
    const CutCheck check = check_cut(model, keep, images);
    std::vector<int64_t> kept;
    for (const auto& group : check.cut.groups) kept.push_back(static_cast<int64_t>(group.kept.size()));
    EXPECT_EQ(cost.parameters(kept), program::parameter_count(check.small.weights));
    EXPECT_EQ(cost.macs(kept), program::macs(check.small.program.graph()));
  }
}

at::Tensor images(int64_t channels, int64_t size) {
  return at::linspace(-1, 1, channels * size * size, at::kDouble).sin().reshape({1, channels, size, size});
}

// l1: 3 -> 6 at five steps; four gates of 4 units that read 6 inputs and 4 states each step; fc: 4 -> 3 of the last.
TEST(Cost, RecurrentLayersCountTheirMatricesInEveryStep) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/lstm_linear.pt2");
  const auto& graph = model.program.graph();
  const int64_t sequences = graph.values[graph.inputs.front()].shape[0].factor;
  EXPECT_EQ(program::macs(graph), sequences * (5 * 3 * 6 + 5 * 4 * 4 * (6 + 4) + 4 * 3));
  const channels::Analysis analysis(graph);
  EXPECT_EQ(cost_of(analysis, Counting::kMacs).macs(all_units(analysis.removable())), program::macs(graph));
}

// l1: 6 -> 8 at five steps; the factor: 8 -> 5 there; fc: 5 -> 3 of their mean.
TEST(Cost, ProductsWithParametersCountLikeLayers) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/einsum_linear.pt2");
  EXPECT_EQ(program::macs(model.program.graph()), 5 * 6 * 8 + 5 * 8 * 5 + 5 * 3);
  expect_counts_of_cut_networks(model, at::linspace(-1, 1, 30, at::kDouble).sin().reshape({1, 5, 6}));
  const Model attention = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/attention_one_head.pt2");
  EXPECT_EQ(program::macs(attention.program.graph()), 5 * (6 * 4 + 6 * 4 + 6 * 8 + 8 * 6) + 6 * 3)
      << "activations with each other do not";
}

/// up: 4 -> 3, transposed, 2 x 2 kernels with stride 2, 8 x 8 -> 16 x 16; fc: 768 -> 5.
Graph transposed_graph(const std::string& target) {
  using program::literal, program::value;
  Graph graph;
  const auto input = [&](const std::string& name, program::Role role, program::Shape shape) {
    return program::add_value(graph, {.name = name, .role = role, .weight = name, .shape = std::move(shape)});
  };
  const auto weight = [&](const std::string& name, const program::Shape& shape) {
    return value(name.substr(name.find('.') + 1), input(name, program::Role::kParameter, shape));
  };
  graph.inputs = {input("x", program::Role::kInput, {{1, true}, {4}, {8}, {8}})};
  std::vector<program::Argument> arguments{value("input", graph.inputs[0]), weight("up.weight", {{4}, {3}, {2}, {2}}),
                                           weight("up.bias", {{3}}), literal("stride", std::vector<int64_t>{2, 2})};
  if (target == "aten::convolution") {
    arguments.push_back(literal("padding", std::vector<int64_t>{0, 0}));
    arguments.push_back(literal("dilation", std::vector<int64_t>{1, 1}));
    arguments.push_back(literal("transposed", true));
    arguments.push_back(literal("output_padding", std::vector<int64_t>{0, 0}));
    arguments.push_back(literal("groups", 1));
  }
  const ValueId up = program::add_node(graph, target, std::move(arguments), "up");
  const ValueId flat =
      program::add_node(graph, "aten::flatten.using_ints", {value("self", up), literal("start_dim", 1)}, "flat");
  graph.outputs = {
      program::add_node(graph, "aten::linear",
                        {value("input", flat), weight("fc.weight", {{5}, {768}}), weight("fc.bias", {{5}})}, "fc")};
  graph.values[up].shape = {{1, true}, {3}, {16}, {16}};
  graph.values[flat].shape = {{1, true}, {768}};
  graph.values[graph.outputs[0]].shape = {{1, true}, {5}};
  return graph;
}

/// The same exported for so many images.
Graph fixed(Graph graph, int64_t images) {
  for (program::Value& value : graph.values) {
    for (program::Extent& extent : value.shape) {
      if (extent.per_image) extent = {extent.factor * images, false};
    }
  }
  return graph;
}

// Torch-Pruning's op_counter.py counts transposed convolutions per output position, and the bias of a linear layer
// once.
TEST(Cost, OfTorchPruningIsThatOfOneImageWhateverTheBatch) {
  for (const char* target : {"aten::conv_transpose2d.input", "aten::convolution"}) {
    const Graph graph = transposed_graph(target);
    for (const Graph& each : {graph, fixed(graph, 1), fixed(graph, 7)}) {
      const channels::Analysis analysis(each);
      EXPECT_EQ(cost_of(analysis, Counting::kTorchPruning).macs(all_units(analysis.removable())),
                16 * 16 * (4 * 3 * 2 * 2 + 3) + 768 * 5 + 5)
          << target << " " << each.images();
    }
  }
}

TEST(Cost, OfShapesThatNoNetworkHasIsRefused) {
  Graph graph = program::rows_graph(4);
  graph.outputs = {program::add_node(graph, "aten::relu", {program::value("self", 0)}, "y")};
  for (const int64_t extent : {int64_t{1} << 22, int64_t{1} << 32}) {
    graph.values[0].shape = graph.values[graph.outputs[0]].shape = {{1, true}, {4}, {extent}, {extent}};
    const channels::Analysis analysis(graph);
    EXPECT_THROW(cost_of(analysis, Counting::kTorchPruning), std::invalid_argument) << extent;
  }
}

TEST(Cost, IsThatOfCutResNets) {
  expect_counts_of_cut_networks(models::make_model("resnet8", {}), images(3, 32));
  expect_counts_of_cut_networks(models::make_model("resnet18", {.height = 64, .width = 64}), images(3, 64));
}

TEST(Cost, IsThatOfGroupedDepthwiseConcatenatedAndFlattenedLayers) {
  Builder net(0);
  const ValueId a = net.conv2d("a", net.input("x", {2, 8, 8}), {.out = 8, .kernel = 3, .bias = true});
  const ValueId b = net.conv2d("b", net.relu(a), {.out = 12, .kernel = 3, .groups = 4});
  const ValueId deep = net.conv2d("deep", net.batch_norm("norm", b), {.out = 12, .groups = 12});
  const ValueId c = net.conv2d("c", deep, {.out = 5});
  const ValueId flat = net.flatten(net.relu(net.cat({c, deep}, 1)));
  const Model model = std::move(net).finish(net.linear("fc", flat, {.out = 3}));
  expect_counts_of_cut_networks(model, images(2, 8));
}

TEST(Cost, IsThatOfExportedNetworks) {
  for (const char* name : {"streams", "grouped"}) {
    expect_counts_of_cut_networks(program::read_pt2(PRUNEX_TEST_DATA "/importance/" + std::string(name) + ".pt2"),
                                  images(3, 8));
  }
}

}  // namespace
}  // namespace prunex::prune
