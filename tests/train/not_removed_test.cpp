#include "prunex/train/product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace prunex::train {
namespace {

sparsity::Masks masks_of(const std::vector<sparsity::Group>& groups, int64_t alive) {
  sparsity::Masks masks;
  for (const auto& group : groups) masks.insert(group.name, at::arange(group.size) < alive);
  return masks;
}

TEST(NotRemoved, AreUnitsThatTheCutDidNotRemove) {
  const std::vector<sparsity::Group> groups{
      {.name = "filters", .slices = {{"a", sparsity::kRows, {}}}, .size = 8},
      {.name = "gone", .slices = {{"b", sparsity::kRows, {}}}, .size = 8},
      {.name = "channels", .slices = {{"b", sparsity::kChannels, {}}}, .size = 4},
      {.name = "columns", .slices = {{"b", sparsity::kColumns, {}}}, .size = 36},
      {.name = "whole", .slices = {{"a", sparsity::kChannels, {}}}, .size = 3},
  };
  sparsity::Cut cut;
  cut.tensors["a"] = {{8, 3, 3, 3}, {{0, {0, 1, 2, 3, 4, 5}}}};
  cut.tensors["b"] = {{8, 4, 3, 3}, {{0, {0, 1, 2}}}};
  const auto left = not_removed(groups, masks_of(groups, 3), cut);
  ASSERT_EQ(left.size(), 3);
  EXPECT_EQ(left[0].group, "filters");
  EXPECT_EQ(left[0].units, 3);  // 5 are masked, the cut takes 2
  EXPECT_EQ(left[1].group, "channels");
  EXPECT_EQ(left[1].units, 1);
  EXPECT_EQ(left[2].group, "columns");
  EXPECT_EQ(left[2].units, 33);
  for (const auto& leftover : left) EXPECT_NE(leftover.reason, "");
}

TEST(NotRemoved, CountUnitsOfSeveralPositions) {
  const std::vector<sparsity::Group> groups{
      {.name = "heads", .slices = {{"a", sparsity::kRows, {0, 1, 2, 3, 4, 5, 6, 7}}}, .size = 4}};
  sparsity::Cut cut;
  cut.tensors["a"] = {{8, 3}, {{0, {0, 1, 2, 3}}}};
  EXPECT_TRUE(not_removed(groups, masks_of(groups, 2), cut).empty());
}

}  // namespace
}  // namespace prunex::train
