#include "prunex/prune/removable.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "prunex/program/builder.h"
#include "prunex/prune/surgery.h"
#include "prunex/prune/training_groups.h"

namespace prunex::prune {
namespace {

using program::Builder;
using program::Model;
using program::ValueId;

/// stem (4) -> a (6) -> b (4), added to the stem, read by c (5); each with batch norm but c.
Model network() {
  Builder net(0);
  const ValueId x = net.relu(net.batch_norm("bn", net.conv2d("stem", net.input("x", {2, 8, 8}), {.out = 4})));
  ValueId y = net.relu(net.batch_norm("bn_a", net.conv2d("a", x, {.out = 6, .kernel = 3, .padding = 1})));
  y = net.conv2d("c", net.add(net.batch_norm("bn_b", net.conv2d("b", y, {.out = 4})), x), {.out = 5});
  return std::move(net).finish(net.linear("fc", net.mean(y, {2, 3}), {.out = 3}));
}

struct Dead {
  std::string group;  ///< of training_groups
  std::vector<int64_t> units;
};

/// Masks the model's weights and cuts what that makes useless; the outputs must not change.
Removable expect_exact(const std::string& words, const std::vector<Dead>& dead) {
  const at::NoGradGuard no_grad;
  Model model = network();
  const auto groups = training_groups(model.program.graph(), words, 0.5);
  sparsity::Masks masks = sparsity::full_masks(groups);
  for (const Dead& each : dead) masks[each.group].index_fill_(0, at::tensor(each.units, at::kLong), false);
  const auto supports = sparsity::supports_of(groups, masks, model.weights.params);
  sparsity::apply_supports(model.weights.params, supports);
  const at::Tensor images = at::linspace(-1, 1, 2 * 2 * 8 * 8).sin().reshape({2, 2, 8, 8});
  const at::Tensor expected = model.program.run({images}, model.weights, program::Mode::kEval)[0];

  Removable removable = removable_units(dependency_groups(model.program.graph()), supports);
  const auto cut = sparsity::make_cut(removable.groups, removable.alive, sparsity::shapes_of(model.weights));
  const auto small = cut_program(model.program, cut);
  sparsity::apply_cut(model.weights, cut);
  const at::Tensor actual = small.run({images}, model.weights, program::Mode::kEval)[0];
  EXPECT_LT((actual - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>());
  return removable;
}

std::vector<int64_t> alive(const Removable& removable, const std::string& group) {
  const at::Tensor units = removable.alive[group].nonzero().flatten();
  return {units.const_data_ptr<int64_t>(), units.const_data_ptr<int64_t>() + units.numel()};
}

TEST(Removable, UnitsOfCoupledGroupsThatAreMasked) {
  const Removable removable = expect_exact("coupled", {{"a", {1, 4}}, {"b", {0}}});
  EXPECT_EQ(alive(removable, "a"), (std::vector<int64_t>{0, 2, 3, 5}));
  EXPECT_EQ(alive(removable, "b"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(alive(removable, "c").size(), 5u);
}

TEST(Removable, FiltersWhoseOutputNobodyReads) {
  EXPECT_EQ(alive(expect_exact("channel", {{"channel:b", {0, 3}}}), "a"), (std::vector<int64_t>{1, 2, 4, 5}));
}

TEST(Removable, AStreamLosesWhatAllItsReadersLost) {
  const Removable removable = expect_exact("channel", {{"channel:a", {0, 1}}, {"channel:c", {1, 2}}});
  EXPECT_EQ(alive(removable, "b"), (std::vector<int64_t>{0, 2, 3}));
}

// Columns of a: channel 1 of its 3x3 kernel owns columns 9 to 17.
TEST(Removable, AChannelDiesWithItsLastColumn) {
  const std::vector<int64_t> all{9, 10, 11, 12, 13, 14, 15, 16, 17}, most(all.begin() + 1, all.end());
  EXPECT_EQ(alive(expect_exact("shape", {{"shape:a", all}, {"shape:c", {1}}}), "b").size(), 3u);
  EXPECT_EQ(alive(expect_exact("shape", {{"shape:a", most}, {"shape:c", {1}}}), "b").size(), 4u);
}

// Whether what follows keeps a masked filter's zeros at zero is not looked at.
TEST(Removable, MaskedFiltersThatAreReadStay) {
  EXPECT_EQ(alive(expect_exact("filter", {{"filter:a", {2}}}), "a").size(), 6u);
}

TEST(Removable, AGroupThatNobodyReadsKeepsOneUnit) {
  EXPECT_EQ(alive(expect_exact("channel", {{"channel:b", {0, 1, 2, 3, 4, 5}}}), "a").size(), 1u);
}

}  // namespace
}  // namespace prunex::prune
