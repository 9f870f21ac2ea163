#include "prunex/sparsity/cut.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace prunex::sparsity {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// a: rows of w, columns of v behind an index of two positions per unit; b: columns of w.
std::vector<Group> groups() {
  return {{.name = "a", .slices = {{"w", 0, {}}, {"v", 1, {0, 3, 1, 4, 2, 5}}}, .size = 3},
          {.name = "b", .slices = {{"w", 1, {}}}, .size = 4}};
}

const Shapes kShapes{{"w", {3, 4}}, {"v", {2, 6}}, {"count", {}}};

Masks masks(const at::Tensor& a, const at::Tensor& b) {
  Masks masks;
  masks.insert("a", a.to(at::kBool));
  masks.insert("b", b.to(at::kBool));
  return masks;
}

Cut example() {
  return make_cut(groups(), masks(at::tensor({1, 0, 1}), at::tensor({0, 1, 1, 1})), kShapes);
}

template <class Call>
std::string complaint(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(Cut, KeepsTheOriginalPositionsOfSurvivingUnits) {
  const Cut cut = example();
  EXPECT_EQ(cut.tensors.at("w").shape, (std::vector<int64_t>{3, 4}));
  EXPECT_THAT(cut.tensors.at("w").kept.at(0), ElementsAre(0, 2));
  EXPECT_THAT(cut.tensors.at("w").kept.at(1), ElementsAre(1, 2, 3));
  EXPECT_THAT(cut.tensors.at("v").kept.at(1), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(cut.tensors.at("count").kept, IsEmpty());
  EXPECT_EQ(cut.groups[1].name, "b");
  EXPECT_EQ(cut.groups[1].size, 4);
  EXPECT_THAT(cut.groups[1].kept, ElementsAre(1, 2, 3));
  EXPECT_THAT(shape_after(cut.tensors.at("w")), ElementsAre(2, 3));
  EXPECT_FALSE(cut.empty());
}

TEST(Cut, OfFullMasksIsEmpty) {
  EXPECT_TRUE(make_cut(groups(), masks(at::ones(3), at::ones(4)), kShapes).empty());
}

TEST(Cut, GroupsThatShareAnAxisRemoveTheirOwnPositions) {
  const std::vector<Group> halves = {{.name = "a", .slices = {{"w", 0, {0, 2}}}, .size = 2},
                                     {.name = "b", .slices = {{"w", 0, {3, 1}}}, .size = 2}};
  const Cut cut = make_cut(halves, masks(at::tensor({0, 1}), at::tensor({0, 1})), {{"w", {4}}});
  EXPECT_THAT(cut.tensors.at("w").kept.at(0), ElementsAre(1, 2));
}

TEST(Cut, RefusesMasksAndGroupsThatDoNotFit) {
  const auto make = [](const std::vector<Group>& groups, const Masks& masks) {
    return complaint([&] { make_cut(groups, masks, kShapes); });
  };
  EXPECT_THAT(make(groups(), Masks()), HasSubstr("no mask for group 'a'"));
  EXPECT_THAT(make(groups(), masks(at::ones(2), at::ones(4))), HasSubstr("has 2 entries, wanted 3"));
  EXPECT_THAT(make(groups(), masks(at::zeros(3), at::ones(4))), HasSubstr("keeps no unit"));
  const Masks one = masks(at::tensor({0, 1, 1}), at::ones(4));
  EXPECT_THAT(make({{.name = "a", .slices = {{"u", 0, {}}}, .size = 3}}, one), HasSubstr("'u'"));
  EXPECT_THAT(make({{.name = "a", .slices = {{"w", kColumns, {}}}, .size = 3}}, one), HasSubstr("cannot be cut"));
  EXPECT_THAT(make({{.name = "a", .slices = {{"w", 0, {4, 5, 6}}}, .size = 3}}, one), HasSubstr("position 4 in 'w'"));
  EXPECT_THAT(make({{.name = "a", .slices = {}, .size = 3}}, one), HasSubstr("lies on no tensor"));
}

TEST(Cut, HashesDifferWhereCutsDo) {
  const Cut cut = example();
  EXPECT_EQ(hash(cut), hash(example()));
  Cut other = cut;
  other.tensors["w"].kept[0] = {0, 1};
  EXPECT_NE(hash(cut), hash(other));
  other = cut;
  other.tensors["w"].kept[1].pop_back();
  EXPECT_NE(hash(cut), hash(other));
  other = cut;
  other.groups[0].kept = {1, 2};
  EXPECT_NE(hash(cut), hash(other));
}

// Worked out by hand, so that a change of the canonical form does not pass unseen: report.json of prunex prune has
// hashes.
TEST(Cut, TheHashOfNothingIsThatOfItsLength) {
  uint64_t fnv = 0xcbf29ce484222325;
  for (int i = 0; i < 8; ++i) fnv *= 0x100000001b3;
  EXPECT_EQ(hash({}), fnv);
}

TEST(Cut, TwoCutsInARowEqualTheirComposition) {
  const Cut first = example();
  Shapes shapes;
  for (const auto& [name, tensor] : first.tensors) shapes[name] = shape_after(tensor);
  const std::vector<Group> left = {{.name = "a", .slices = {{"w", 0, {}}, {"v", 1, {0, 2, 1, 3}}}, .size = 2},
                                   {.name = "b", .slices = {{"w", 1, {}}}, .size = 3}};
  const Cut second = make_cut(left, masks(at::tensor({0, 1}), at::tensor({1, 0, 1})), shapes);
  EXPECT_EQ(compose(first, second),
            make_cut(groups(), masks(at::tensor({0, 0, 1}), at::tensor({0, 1, 0, 1})), kShapes));
  EXPECT_THAT(complaint([&] { compose(first, first); }), HasSubstr("the first leaves"));
}

TEST(ApplyCut, MakesNewLeavesWithTheKeptSlices) {
  TensorDict tensors;
  tensors.insert("w", at::arange(12, at::kFloat).view({3, 4}).set_requires_grad(true));
  tensors.insert("count", at::scalar_tensor(5, at::kLong));
  const at::Tensor count = tensors["count"];
  apply_cut(tensors, example());
  const at::Tensor& w = tensors["w"];
  EXPECT_TRUE(at::equal(w, at::tensor({1., 2., 3., 9., 10., 11.}, at::kFloat).view({2, 3})));
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(w.is_leaf());
  EXPECT_TRUE(tensors["count"].is_same(count));
}

TEST(ApplyCut, ChangesNothingWhenATensorDoesNotFit) {
  TensorDict tensors;
  tensors.insert("w", at::ones({3, 4}));
  tensors.insert("v", at::ones({2, 5}));
  EXPECT_THAT(complaint([&] { apply_cut(tensors, example()); }), HasSubstr("the cut is of a 'v' of 2x6, got 2x5"));
  EXPECT_EQ(tensors["w"].size(0), 3);
  TensorDict unknown;
  unknown.insert("u", at::ones({1}));
  EXPECT_THAT(complaint([&] { apply_cut(unknown, example()); }), HasSubstr("no tensor 'u'"));
}

const std::vector<std::vector<int64_t>> kShapesOfKernels{{8, 6, 3, 3}, {8, 6, 1, 1}, {8, 1, 3, 3}, {8, 1, 1, 1}};

// PyTorch's own notion of the layout, on shapes where strides alone are ambiguous: 1x1 kernels, depthwise weights.
TEST(ApplyCut, KeepsTheMemoryFormat) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const std::vector<int64_t>& shape : kShapesOfKernels) {
      const at::Tensor tensor = at::rand(shape).contiguous(format);
      TensorCut cut{shape, {{0, {1, 2, 5}}}};
      if (shape[1] > 1) cut.kept[1] = {0, 4};
      const at::Tensor part = slice(tensor, cut, "w");
      EXPECT_TRUE(part.is_contiguous(format));
      EXPECT_EQ(part.suggest_memory_format(), tensor.suggest_memory_format()) << shape;
      EXPECT_EQ(part[1][0][0][0].item<float>(), tensor[2][0][0][0].item<float>());
    }
  }
}

}  // namespace
}  // namespace prunex::sparsity
