// Stock torchvision networks, cut: against the masked ones, and against stock PyTorch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "prunex/models/models.h"
#include "prunex/program/macs.h"
#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "tests/channels/case_check.h"
#include "tests/channels/cut_check.h"
#include "tests/python.h"
#include "tests/pytorch/load_tensors.h"
#include "tests/scratch.h"

namespace prunex::channels {
namespace {

using program::Graph;
using program::Mode;
using program::Model;

at::Tensor images(const Graph& graph, at::ScalarType dtype) {
  std::vector<int64_t> shape{2};
  const program::Shape& input = graph.values[graph.inputs[0]].shape;
  for (size_t axis = 1; axis < input.size(); ++axis) shape.push_back(input[axis].factor);
  const int64_t count = 2 * 3 * shape[2] * shape[3];
  return at::linspace(-1000, 1000, count, at::kDouble).sin().to(dtype).reshape(shape);
}

/// A row of a table: network, groups, prunable ones, MACs before and after, errors; then what cannot be pruned.
void report(const std::string& name, const Graph& graph, const Graph& small, double error32, double error64) {
  const auto groups = Analysis(graph).groups();
  const auto prunable = std::count_if(groups.begin(), groups.end(), [](const auto& group) { return group.prunable; });
  fmt::print("| {} | {} | {} | {} | {} | {:.0e} | {:.0e} |\n", name, groups.size(), prunable, program::macs(graph),
             program::macs(small), error32, error64);
  for (const DependencyGroup& group : groups) {
    const bool boundary = group.kind == GroupKind::kInput || group.kind == GroupKind::kOutput;
    if (!group.prunable && !boundary) fmt::print("  {} ({} units): {}\n", group.name, group.size, group.reason);
  }
}

void expect_pytorchs_answers(Model& model) {
  const tests::Scratch folder;
  program::write_pt2(folder / "cut.pt2",
                     {program::Program(in_mode(model.program.graph(), Mode::kEval)), model.weights});
  PRUNEX_RUN_PYTHON("tests/pytorch/run_cut.py", folder.path());
  auto expected = tests::load_tensors(folder / "expected.pt");
  for (const char* batch : {"1", "3"}) {
    const at::Tensor wanted = expected[std::string("y") + batch];
    const at::Tensor got = model.program.run({expected[std::string("x") + batch]}, model.weights, Mode::kEval)[0];
    EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-5 * wanted.abs().max().item<double>()) << batch;
  }
}

void expect_it_trains(Model& model) {
  for (auto& item : model.weights.params) item.value().set_requires_grad(true);
  const at::Tensor x = images(model.program.graph(), at::kFloat);
  model.program.run({x}, model.weights, Mode::kTrain)[0].square().mean().backward();
  for (const auto& item : model.weights.params) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
}

void check(const std::string& name, const Model& model) {
  at::set_num_threads(1);
  const Graph& graph = model.program.graph();
  const double one = check_cut(model, Keep::kOne, images(graph, at::kDouble)).error;
  const double half = check_cut(model, Keep::kHalf, images(graph, at::kDouble)).error;
  CutCheck cut = check_cut(model, Keep::kHalf, images(graph, at::kFloat));
  report(name, graph, cut.small.program.graph(), cut.error, std::max(one, half));
  EXPECT_LT(one, 1e-12);
  EXPECT_LT(half, 1e-12);
  EXPECT_LT(cut.error, 1e-5);
  EXPECT_GT(cut.effect, 1e-3);
  expect_pytorchs_answers(cut.small);
  expect_it_trains(cut.small);
}

int64_t inner_and_streams(const Graph& graph) {
  const auto groups = Analysis(graph).groups();
  return std::count_if(groups.begin(), groups.end(), [](const DependencyGroup& group) {
    return group.kind == GroupKind::kInner || group.kind == GroupKind::kStream;
  });
}

struct Network {
  std::string name;
  int64_t groups = 0;  ///< inner ones and streams; 0: not known from elsewhere
};

class CutNetworks : public testing::TestWithParam<Network> {};

TEST_P(CutNetworks, EqualMaskedOnesAndPyTorchAndTrain) {
  const auto& [name, groups] = GetParam();
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/channels/export_stock.py", folder.path(), "--train", name);
  const Model model = program::read_pt2(folder / (name + ".pt2"));
  if (groups > 0) {
    EXPECT_EQ(inner_and_streams(model.program.graph()), groups);
  }
  check(name, model);
}

// Torch-Pruning 1.6.1 finds 120 groups in densenet121, 25 in mobilenet_v2 and 37 in the resnets of 50 layers, which
// resnext50 has, too. Each of the 57 convolutions of googlenet, 94 of inception_v3 and 25 hidden ones of squeezenet is
// a group.
INSTANTIATE_TEST_SUITE_P(
    Torchvision, CutNetworks,
    testing::Values(Network{"mobilenet_v2", 25}, Network{"densenet121", 120}, Network{"shufflenet_v2_x1_0"},
                    Network{"efficientnet_b0"}, Network{"resnext50_32x4d", 37}, Network{"googlenet", 57},
                    Network{"inception_v3", 94}, Network{"regnet_y_400mf"}, Network{"squeezenet1_0", 25},
                    Network{"mnasnet1_0"}, Network{"mobilenet_v3_small"}, Network{"mobilenet_v3_large"},
                    Network{"wide_resnet50_2", 37}, Network{"resnet18", 12}, Network{"regnet_x_1_6gf"}),
    [](const auto& info) { return info.param.name; });

/// Half of the units of every prunable group go; options as the bench's.
void check_attention(const Model& model, GroupOptions options) {
  const Mask mask = options.statistics ? Mask::kTwins : Mask::kAll;
  const Analysis analysis(model.program, options);
  const auto& removable = analysis.removable();
  const auto masks = half(removable, mask, 1);
  Model small = cut(model, analysis, sparsity::make_cut(removable, masks, sparsity::shapes_of(model.weights)));
  const auto inputs = make_inputs(model.program.graph());
  const auto expected = run(masked(model, analysis, masks, mask), inputs);
  EXPECT_LT(difference(run(small, inputs), expected), 1e-5);
  EXPECT_GT(difference(run(model, inputs), expected), 1e-4);
  expect_pytorchs_answers(small);
  expect_it_trains(small);
}

class CutTransformers : public testing::TestWithParam<Network> {};

TEST_P(CutTransformers, EqualMaskedOnesAndPyTorchAndTrain) {
  const auto& [name, groups] = GetParam();
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/channels/export_stock.py", folder.path(), "--train", name);
  Model model = program::read_pt2(folder / (name + ".pt2"));
  for (auto& item : model.weights.params) {  // scales of 1e-6 and a last layer of zeros would hide everything
    at::Tensor values = item.value().detach();
    const bool zero = values.count_nonzero().item<int64_t>() == 0;
    if (zero || values.numel() == values.size(0)) values.copy_(at::linspace(0.2, 1, values.numel()).view_as(values));
  }
  EXPECT_EQ(inner_and_streams(model.program.graph()), groups);
  check_attention(model, {});
  check_attention(model, {.statistics = true});
  if (name != "convnext_tiny") check_attention(model, {.heads = true});
}

// Of convnext_tiny: one group in each of 18 blocks, and 4 streams. Of vit_b_16: hidden units and attention in each of
// 12 layers, and the stream. Of swin_t: the same in each of 12 blocks and the heads of
// its table of relative positions, and 4 streams.
INSTANTIATE_TEST_SUITE_P(Torchvision, CutTransformers,
                         testing::Values(Network{"convnext_tiny", 22}, Network{"vit_b_16", 25}, Network{"swin_t", 40}),
                         [](const auto& info) { return info.param.name; });

// The flattening before its classifier has 25,088 entries.
TEST(CutBuiltIn, Vgg16EqualsTheMaskedOneAndPyTorchAndTrains) {
  check("vgg16_bn", models::make_model("vgg16_bn", {}));
}

}  // namespace
}  // namespace prunex::channels
