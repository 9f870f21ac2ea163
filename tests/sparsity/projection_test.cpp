// Scores, masks and supports against loops over single entries (tests/units.h) and cases by hand.
#include "prunex/sparsity/projection.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/groups.h"
#include "tests/units.h"

namespace prunex::sparsity {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::groups_of_every_kind;
using tests::mixed_masks;
using tests::random_tensors;

at::Tensor mask_of(const std::vector<int64_t>& units) {
  return at::tensor(units, at::kLong).to(at::kBool);
}

TensorDict one_tensor(const at::Tensor& tensor) {
  TensorDict tensors;
  tensors.insert("w", tensor);
  return tensors;
}

/// The sum of squares per unit, entry by entry.
at::Tensor naive_scores(const Group& group, const TensorDict& tensors) {
  at::Tensor scores = at::zeros({group.size}, at::kDouble);
  double* score = scores.data_ptr<double>();
  for (const Slice& slice : group.slices) {
    const at::Tensor tensor = tensors[slice.tensor].to(at::kDouble).contiguous();
    const at::Tensor units = tests::unit_of_entries(group, slice, tensor);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const int64_t unit = units.const_data_ptr<int64_t>()[i];
      const double x = tensor.const_data_ptr<double>()[i];
      if (unit != tests::kNoUnit) score[unit] += x * x;
    }
  }
  return scores;
}

TEST(UnitScores, AreTheSquaresOfEveryEntryAUnitOwns) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const TensorDict tensors = random_tensors(type, format);
      const auto groups = groups_of_every_kind();
      const auto scores = unit_scores(groups, tensors);
      ASSERT_EQ(scores.size(), groups.size());
      for (size_t g = 0; g < groups.size(); ++g) {
        // floats are squared in double: no rounding of single precision in either
        EXPECT_TRUE(at::allclose(scores[g], naive_scores(groups[g], tensors), 1e-13, 0)) << groups[g].name;
      }
    }
  }
}

TEST(UnitScores, HaveTheRangeOfDoubles) {
  const auto tensors = one_tensor(at::full({1, 2}, 1e30, at::kFloat));
  const auto scores = unit_scores({{.name = "g", .slices = {{"w", kRows, {}}}, .size = 1}}, tensors);
  EXPECT_NEAR(scores[0].item<double>(), 2e60, 1e54);  // its square overflows a float
}

TEST(TopK, TakesTheHighestScoresAndOfEqualOnesTheLowerIndex) {
  const at::Tensor scores = at::tensor({1.0, 3.0, 2.0, 3.0, 2.0, 2.0}, at::kDouble);
  EXPECT_TRUE(at::equal(top_k_mask(scores, 1), mask_of({0, 1, 0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(top_k_mask(scores, 3), mask_of({0, 1, 1, 1, 0, 0})));
  EXPECT_TRUE(at::equal(top_k_mask(scores, 4), mask_of({0, 1, 1, 1, 1, 0})));
  EXPECT_TRUE(at::equal(top_k_mask(scores, 6), mask_of({1, 1, 1, 1, 1, 1})));
  EXPECT_TRUE(at::equal(top_k_mask(at::zeros({4}, at::kDouble), 2), mask_of({1, 1, 0, 0})));
}

TEST(TopK, ReadsScoresThatAreNotContiguous) {
  const at::Tensor scores = at::tensor({1.0, 9.0, 2.0, 0.0, 3.0, 0.0}, at::kDouble).view({3, 2}).select(1, 0);
  EXPECT_TRUE(at::equal(top_k_mask(scores, 1), mask_of({0, 0, 1})));
}

TEST(SelectUnits, KeepsEveryGroupsOwnShareAtThatExchange) {
  const std::vector<Group> groups{{.name = "half", .size = 4, .keep = 0.5}, {.name = "tenth", .size = 4, .keep = 0.1}};
  const std::vector<at::Tensor> scores{at::tensor({4.0, 1.0, 3.0, 2.0}, at::kDouble),
                                       at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble)};
  const KeepSchedule schedule{.ramp = KeepRamp::kCubic, .start = 2, .end = 3};
  EXPECT_EQ(count_alive(select_units(groups, scores, schedule, 1)), 8);
  // k = 2, half of the ramp left: 0.5 + 0.5/8 keeps 2 of 4, 0.1 + 0.9/8 one
  const Masks second = select_units(groups, scores, schedule, 2);
  EXPECT_TRUE(at::equal(second["half"], mask_of({1, 0, 1, 0})));
  EXPECT_TRUE(at::equal(second["tenth"], mask_of({0, 0, 0, 1})));
}

TEST(SelectUnits, RefusesScoresThatAreNotNumbers) {
  const std::vector<Group> groups{{.name = "half", .size = 4, .keep = 0.5}};
  const std::vector<at::Tensor> scores{at::tensor({4.0, std::nan(""), 3.0, 2.0}, at::kDouble)};
  EXPECT_THAT([&] { select_units(groups, scores, KeepSchedule(), 2); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("scores of half are not numbers")));
}

TEST(Masks, CountWhatIsAliveAndWhatChanged) {
  const std::vector<Group> groups{{.name = "a", .size = 3}, {.name = "b", .size = 2}};
  const Masks full = full_masks(groups);
  EXPECT_EQ(count_alive(full), 5);
  EXPECT_EQ(count_changes(full, full), 0);
  Masks other;
  other.insert("a", mask_of({0, 1, 0}));
  other.insert("b", mask_of({1, 1}));
  EXPECT_EQ(count_alive(other), 3);
  EXPECT_EQ(count_changes(full, other), 2);
  Masks opposite;
  opposite.insert("a", mask_of({1, 0, 0}));
  opposite.insert("b", mask_of({0, 1}));
  EXPECT_EQ(count_changes(other, opposite), 3);
}

TEST(Masks, OfOverlappingGroupsComeFromTheUnprojectedTensorAndIntersect) {
  // Of [[2.1, 2], [0, 2.5]] keep one row and one column. Squared norms: rows 8.41, 6.25; columns 4.41, 10.25. So row 0
  // and column 1 win, and their intersection is the 2. Projecting the row first would leave [[2.1, 2], [0, 0]] and then
  // the column of the 2.1.
  TensorDict tensors = one_tensor(at::tensor({2.1, 2.0, 0.0, 2.5}, at::kDouble).view({2, 2}));
  const std::vector<Group> groups{{.name = "rows", .slices = {{"w", kRows, {}}}, .size = 2, .keep = 0.5},
                                  {.name = "columns", .slices = {{"w", kColumns, {}}}, .size = 2, .keep = 0.5}};
  const Masks masks = select_units(groups, unit_scores(groups, tensors), {.ramp = KeepRamp::kHard}, 1);
  apply_supports(tensors, supports_of(groups, masks, tensors));
  EXPECT_TRUE(at::equal(tensors["w"], at::tensor({0.0, 2.0, 0.0, 0.0}, at::kDouble).view({2, 2})));
}

TEST(Supports, AreTheProductOfAllMasksOnATensor) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    TensorDict tensors = random_tensors(at::kDouble, format);
    const TensorDict before = random_tensors(at::kDouble, format);
    const auto groups = groups_of_every_kind();
    const Masks masks = mixed_masks(groups);
    const Supports supports = supports_of(groups, masks, tensors);
    EXPECT_EQ(supports.find("free"), nullptr);
    apply_supports(tensors, supports);
    for (const auto& item : tensors) {
      const at::Tensor want = before[item.key()] * tests::alive_entries(groups, masks, item.key(), item.value());
      EXPECT_TRUE(at::equal(item.value(), want)) << item.key();
    }
  }
}

TEST(Supports, CombineAFilterAChannelAndAShapeGroup) {
  TensorDict tensors = one_tensor(at::ones({2, 2, 1, 3}, at::kDouble));
  const std::vector<Group> groups{{.name = "filter", .slices = {{"w", kRows, {}}}, .size = 2},
                                  {.name = "channel", .slices = {{"w", kChannels, {}}}, .size = 2},
                                  {.name = "shape", .slices = {{"w", kColumns, {}}}, .size = 6}};
  Masks masks;
  masks.insert("filter", mask_of({0, 1}));
  masks.insert("channel", mask_of({1, 0}));
  masks.insert("shape", mask_of({1, 0, 1, 1, 1, 1}));
  apply_supports(tensors, supports_of(groups, masks, tensors));
  EXPECT_TRUE(at::equal(tensors["w"].flatten(), at::tensor({0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0}, at::kDouble)));
}

TEST(Supports, IgnoreTensorsThatAreNotThere) {
  TensorDict all = random_tensors(at::kDouble, at::MemoryFormat::Contiguous);
  const auto groups = groups_of_every_kind();
  const Supports supports = supports_of(groups, mixed_masks(groups), all);
  TensorDict only = one_tensor(at::ones({2}));
  apply_supports(only, supports);
  EXPECT_TRUE(at::equal(only["w"], at::ones({2})));
}

TEST(CheckGroups, AcceptsEveryKind) {
  EXPECT_NO_THROW(check_groups(groups_of_every_kind(), random_tensors(at::kFloat, at::MemoryFormat::Contiguous)));
  EXPECT_NO_THROW(check_groups({}, TensorDict()));
}

TEST(CheckGroups, RefusesWhatDoesNotFitTheTensors) {
  TensorDict tensors = random_tensors(at::kFloat, at::MemoryFormat::Contiguous);
  tensors.insert("scalar", at::scalar_tensor(1.0));
  const auto refused = [&](Group group, const std::string& why) {
    EXPECT_THAT([&] { check_groups({group}, tensors); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("'g'"), HasSubstr(why))));
  };
  refused({.name = "g", .slices = {{"none", kRows, {}}}, .size = 6}, "'none'");
  refused({.name = "g", .slices = {{"gamma", kChannels, {}}}, .size = 6}, "got axis 1");
  refused({.name = "g", .slices = {{"first", 4, {}}}, .size = 6}, "got axis 4");
  refused({.name = "g", .slices = {{"scalar", kColumns, {}}}, .size = 1}, "0 dimensions");
  refused({.name = "g", .slices = {{"first", -2, {}}}, .size = 6}, "got axis -2");
  refused({.name = "g", .slices = {{"first", kRows, {}}}, .size = 5}, "5 units, but 'first' has 6");
  refused({.name = "g", .slices = {{"second", kColumns, {}}}, .size = 6}, "6 units, but 'second' has 36");
  refused({.name = "g", .slices = {{"linear", kChannels, {0, 1, 2}}}, .size = 2}, "3 positions");
  refused({.name = "g", .slices = {{"linear", kChannels, {0, 20}}}, .size = 2}, "position 20");
  refused({.name = "g", .slices = {{"linear", kChannels, {0, -1}}}, .size = 2}, "position -1");
  refused({.name = "g", .slices = {{"linear", kChannels, {3, 3}}}, .size = 2}, "position 3");
}

TEST(CheckGroups, RefusesSlicesThatNoSupportCanHold) {
  const TensorDict tensors = random_tensors(at::kFloat, at::MemoryFormat::Contiguous);
  const std::vector<Group> groups{{.name = "g", .slices = {{"first", 2, {}}}, .size = 3}};
  EXPECT_THAT([&] { check_groups(groups, tensors); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("'g'"), HasSubstr("got axis 2"))));
}

TEST(CheckGroups, RefusesEmptyGroupsAndSharesOutsideZeroToOne) {
  const TensorDict tensors = random_tensors(at::kFloat, at::MemoryFormat::Contiguous);
  for (const double keep : {0.0, -0.5, 1.5, std::nan("")}) {
    const std::vector<Group> groups{{.name = "g", .slices = {{"gamma", kRows, {}}}, .size = 6, .keep = keep}};
    EXPECT_THAT([&] { check_groups(groups, tensors); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("'g'"), HasSubstr("keep"))));
  }
  EXPECT_THAT([&] { check_groups({{.name = "g", .size = 0}}, tensors); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("0 units")));
}

TEST(CheckGroups, RefusesTwoGroupsOfOneName) {
  const TensorDict tensors = random_tensors(at::kFloat, at::MemoryFormat::Contiguous);
  const std::vector<Group> groups{{.name = "g", .slices = {{"gamma", kRows, {}}}, .size = 6},
                                  {.name = "g", .slices = {{"second", kRows, {}}}, .size = 5}};
  EXPECT_THAT([&] { check_groups(groups, tensors); }, ThrowsMessage<std::invalid_argument>(HasSubstr("'g'")));
}

}  // namespace
}  // namespace prunex::sparsity
