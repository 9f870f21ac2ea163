// Dependency groups of networks as stock PyTorch exports them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "prunex/channels/analysis.h"
#include "prunex/program/pt2.h"
#include "prunex/sparsity/projection.h"
#include "tests/channels/cut_check.h"
#include "tests/channels/words.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::channels {
namespace {

using program::Model;
using testing::Contains;
using testing::ElementsAre;

at::Tensor photo(at::ScalarType dtype) {
  return at::linspace(-9, 9, 3 * 64 * 64, dtype).sin().reshape({1, 3, 64, 64});
}

// Depthwise convolutions, and the shuffle of channels. The other networks of torchvision: tests/pytorch/cut_test.cpp.
TEST(StockNetworks, CutExactly) {
  at::set_num_threads(1);
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/channels/export_stock.py", folder.path(), "mobilenet_v2", "shufflenet_v2_x0_5");
  for (const char* name : {"mobilenet_v2", "shufflenet_v2_x0_5"}) {
    const Model model = program::read_pt2(folder / (std::string(name) + ".pt2"));
    EXPECT_LT(cut_error(model, photo(at::kDouble)), 1e-12) << name;
    const CutCheck half = check_cut(model, Keep::kHalf, photo(at::kFloat));
    EXPECT_LT(half.error, 1e-5) << name;
    EXPECT_GT(half.effect, 1e-3) << name;
  }
}

/// The model's groups, all units alive but these.
sparsity::Cut remove(const Model& model, const std::string& group, int64_t unit) {
  const auto groups = Analysis(model.program.graph()).removable();
  sparsity::Masks masks = sparsity::full_masks(groups);
  masks[group][unit] = false;
  return sparsity::make_cut(groups, masks, sparsity::shapes_of(model.weights));
}

void expect_halves_of_a_chunk(const Model& model) {
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "cv1")),
              ElementsAre("cv1.bias:0[0 1 2 3]", "cv1.weight:0[0 1 2 3]", "cv2.weight:1[0 1 2 3]"));
  EXPECT_THAT(words(find_group(groups, "cv1[4]")),
              ElementsAre("cv1.bias:0[4 5 6 7]", "cv1.weight:0[4 5 6 7]", "cv2.weight:1[4 8 5 9 6 10 7 11]", "m.bias:0",
                          "m.weight:0", "m.weight:1"));
  const program::Graph small = cut_graph(model.program.graph(), remove(model, "cv1", 2));
  EXPECT_EQ(small.nodes[1].target, "aten::split_with_sizes");
  EXPECT_THAT(small.nodes[1].find("split_sizes")->literal.toIntVector(), ElementsAre(3, 4));
}

void expect_a_slice_of_features(const Model& model) {
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_THAT(words(find_group(groups, "conv")), Contains("conv.weight:0"));
  EXPECT_EQ(find_group(groups, "conv").slices.back().index.size(), 24u);
  EXPECT_THAT(words(find_group(groups, "fc1")), ElementsAre("fc1.bias:0[0 1 7]", "fc1.weight:0[0 1 7]"));
  EXPECT_THAT(words(find_group(groups, "fc1[2]")),
              ElementsAre("fc1.bias:0[2 3 4 5 6]", "fc1.weight:0[2 3 4 5 6]", "fc2.weight:1"));
}

TEST(StockNetworks, SmallOnesHaveTheGroupsFoundByHandAndCutExactly) {
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/channels/export_stock.py", folder.path(), "split_stage", "tied_weights", "view_size",
                    "slopes");
  std::map<std::string, Model> models;
  for (const char* name : {"split_stage", "tied_weights", "view_size", "slopes"}) {
    models.emplace(name, program::read_pt2(folder / (std::string(name) + ".pt2")));
    EXPECT_LT(cut_error(models.at(name), photo(at::kDouble)), 1e-12) << name;
  }
  expect_halves_of_a_chunk(models.at("split_stage"));
  expect_a_slice_of_features(models.at("view_size"));
  const auto tied = Analysis(models.at("tied_weights").program.graph()).groups();
  EXPECT_THAT(words(find_group(tied, "a")),
              ElementsAre("a.weight:0", "a.weight:1", "fc.weight:1", "stem.bias:0", "stem.weight:0"));
  const auto slopes = Analysis(models.at("slopes").program.graph()).groups();
  EXPECT_THAT(words(find_group(slopes, "conv")),
              ElementsAre("conv.bias:0", "conv.weight:0", "fc.weight:1", "norm.bias:0", "norm.running_mean:0",
                          "norm.running_var:0", "norm.weight:0", "slopes.weight:0"));
}

}  // namespace
}  // namespace prunex::channels
