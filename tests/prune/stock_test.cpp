// Dependency groups of networks as stock PyTorch exports them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cut_check.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/groups.h"
#include "tests/python.h"
#include "tests/scratch.h"
#include "words.h"

namespace prunex::prune {
namespace {

using program::Model;
using testing::Contains;
using testing::ElementsAre;

int64_t inner_and_streams(const std::vector<DependencyGroup>& groups) {
  return std::count_if(groups.begin(), groups.end(), [](const DependencyGroup& group) {
    return group.kind == GroupKind::kInner || group.kind == GroupKind::kStream;
  });
}

double error(Model& model) {
  const at::Tensor images = at::linspace(-9, 9, 3 * 64 * 64).sin().reshape({1, 3, 64, 64});
  return cut_error(model, images);
}

// Torch-Pruning 1.6.1 finds 120 groups in densenet121, 25 in mobilenet_v2 and 37 in resnet50; resnext50 has its layers.
// Each of the 57 convolutions of googlenet is a group.
TEST(StockNetworks, HaveTheKnownGroupsAndCutExactly) {
  at::set_num_threads(1);
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/prune/export_stock.py", folder.path(), "densenet121", "mobilenet_v2", "resnet50",
                    "resnext50_32x4d", "googlenet");
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"densenet121", 120}, {"mobilenet_v2", 25}, {"resnet50", 37}, {"resnext50_32x4d", 37}, {"googlenet", 57}};
  for (const auto& [name, number] : expected) {
    Model model = program::read_pt2(folder / (name + ".pt2"));
    const auto groups = dependency_groups(model.program.graph());
    EXPECT_EQ(inner_and_streams(groups), number) << name;
    for (const DependencyGroup& group : groups) {
      const bool inside = group.kind == GroupKind::kInner || group.kind == GroupKind::kStream;
      EXPECT_EQ(group.prunable, inside) << name << " " << group.name << " " << group.reason;
    }
    EXPECT_LT(error(model), 1e-5) << name;
  }
}

TEST(StockNetworks, SmallOnesHaveTheGroupsFoundByHand) {
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON("tests/prune/export_stock.py", folder.path(), "split_stage", "tied_weights", "view_size");

  const auto split = dependency_groups(program::read_pt2(folder / "split_stage.pt2").program.graph());
  EXPECT_THAT(words(find_group(split, "cv1")),
              ElementsAre("cv1.bias:0[0 1 2 3]", "cv1.weight:0[0 1 2 3]", "cv2.weight:1[0 1 2 3]"));
  EXPECT_THAT(words(find_group(split, "cv1[4]")),
              ElementsAre("cv1.bias:0[4 5 6 7]", "cv1.weight:0[4 5 6 7]", "cv2.weight:1[4 8 5 9 6 10 7 11]", "m.bias:0",
                          "m.weight:0", "m.weight:1"));

  Model tied = program::read_pt2(folder / "tied_weights.pt2");
  const auto shared = dependency_groups(tied.program.graph());
  EXPECT_THAT(words(find_group(shared, "a")),
              ElementsAre("a.weight:0", "a.weight:1", "fc.weight:1", "stem.bias:0", "stem.weight:0"));
  EXPECT_LT(error(tied), 1e-5);

  const auto view = dependency_groups(program::read_pt2(folder / "view_size.pt2").program.graph());
  EXPECT_THAT(words(find_group(view, "conv")), Contains("conv.weight:0"));
  EXPECT_EQ(find_group(view, "conv").slices.back().index.size(), 24u);
  EXPECT_THAT(words(find_group(view, "fc1")), ElementsAre("fc1.bias:0[0 1 7]", "fc1.weight:0[0 1 7]"));
  EXPECT_THAT(words(find_group(view, "fc1[2]")),
              ElementsAre("fc1.bias:0[2 3 4 5 6]", "fc1.weight:0[2 3 4 5 6]", "fc2.weight:1"));
}

}  // namespace
}  // namespace prunex::prune
