// Analytic counts against those of networks that were really cut.
#include "prunex/prune/cost.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "tests/channels/cut_check.h"

namespace prunex::prune {
namespace {

using channels::check_cut;
using channels::CutCheck;
using channels::Keep;
using program::Builder;
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
