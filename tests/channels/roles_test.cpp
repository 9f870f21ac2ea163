#include "prunex/channels/roles.h"

#include <gtest/gtest.h>

#include "prunex/program/pt2.h"

namespace prunex::channels {
namespace {

void expect_matrix(const WeightRole& role, WeightKind kind, int64_t outputs, int64_t inputs) {
  EXPECT_EQ(role.kind, kind);
  EXPECT_EQ(role.out_axis, outputs);
  for (int64_t axis = 0; axis < 4; ++axis) EXPECT_EQ(role.reads(axis), axis == inputs);
}

TEST(Roles, AreThoseOfTheParametersWherePartsOfThemAreUsed) {
  const auto model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/weights_in_parts.pt2");
  const WeightRoles roles = weight_roles(model.program.graph());
  expect_matrix(roles.at("joined"), WeightKind::kLinear, 0, 1);
  expect_matrix(roles.at("turned"), WeightKind::kFactor, 0, 1);
  expect_matrix(roles.at("stacked"), WeightKind::kFactor, 1, 2);
}

TEST(Roles, AreThoseOfTheParametersThatWeightsAreComputedOf) {
  const auto holes = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/weights_with_holes.pt2");
  for (const char* name : {"a.weight_orig", "b.weight_orig"}) {
    expect_matrix(weight_roles(holes.program.graph()).at(name), WeightKind::kConvolution, 0, 1);
  }
  const auto standardized = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/weight_standardization.pt2");
  for (const char* name : {"a.weight", "b.weight", "c.weight"}) {
    expect_matrix(weight_roles(standardized.program.graph()).at(name), WeightKind::kConvolution, 0, 1);
  }
}

}  // namespace
}  // namespace prunex::channels
