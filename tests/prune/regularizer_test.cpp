// Gradients of sparse training against the formulas of docs/pruning.md, written out entry by entry.
#include "prunex/prune/regularizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

#include "prunex/channels/analysis.h"
#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "prunex/sparsity/projection.h"
#include "tests/texts.h"

namespace prunex::prune {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

program::Model network(at::ScalarType type = at::kDouble) {
  program::Model model = models::make_model("resnet8", {.height = 16, .width = 16});
  auto generator = at::detail::createCPUGenerator(7);
  for (auto& item : model.weights.params) {
    const at::Tensor values = at::randn(item.value().sizes(), generator, at::kDouble) * 0.2 + 0.1;
    item.value() = values.to(type).set_requires_grad(true);
  }
  return model;
}

/// What the regulariser adds to gradients of zero.
TensorDict added(const Regularizer& regularizer, const TensorDict& params, double factor = 1) {
  TensorDict copies, gradients;
  for (const auto& item : params) {
    copies.insert(item.key(), item.value().detach().clone().set_requires_grad(true));
    copies[item.key()].mutable_grad() = at::zeros_like(copies[item.key()].detach());
  }
  regularizer.add_to_gradients(copies, factor);
  for (const auto& item : copies) gradients.insert(item.key(), item.value().grad());
  return gradients;
}

Regularizer refreshed(const RegularizerOptions& options, const program::Model& model) {
  Regularizer regularizer(options, model.program.graph());
  regularizer.refresh(model.weights, 0);
  return regularizer;
}

/// conv1 of the first block: nothing but its rows, its batch norm and the columns of conv2 hold these units.
struct Inner {
  at::Tensor rows, gammas, columns;
};

Inner inner(const TensorDict& tensors) {
  return {tensors["layer1.0.conv1.weight"], tensors["layer1.0.bn1.weight"], tensors["layer1.0.conv2.weight"]};
}

double sum_of_squares(const at::Tensor& part) {
  return part.square().sum().item<double>();
}

/// Mean over the three places of their sums of squares.
std::vector<double> mean_squares(const TensorDict& params) {
  const Inner w = inner(params);
  std::vector<double> squares;
  for (int64_t k = 0; k < w.rows.size(0); ++k) {
    squares.push_back(
        (sum_of_squares(w.rows[k]) + sum_of_squares(w.gammas[k]) + sum_of_squares(w.columns.select(1, k))) / 3);
  }
  return squares;
}

/// Of two units on an axis: what they are pulled by beyond what else lies on the weight. The other axes of both
/// convolutions belong to the residual stream.
void expect_difference(const at::Tensor& ratio, int64_t axis, const std::vector<double>& want) {
  for (size_t k = 1; k < want.size(); ++k) {
    const at::Tensor difference = ratio.select(axis, static_cast<int64_t>(k)) - ratio.select(axis, 0);
    EXPECT_LT((difference - (want[k] - want[0])).abs().max().item<double>(), 1e-5 * std::abs(want[0])) << k;
  }
}

/// gradient == coefficient * weight wherever unit k lies; scores are sums in float.
void expect_coefficients(const TensorDict& gradients, const TensorDict& params, const std::vector<double>& want) {
  const Inner w = inner(params), g = inner(gradients);
  for (size_t k = 0; k < want.size(); ++k) {
    const auto unit = static_cast<int64_t>(k);
    EXPECT_NEAR((g.gammas[unit] / w.gammas[unit]).item<double>() / want[k], 1, 1e-5) << k;
  }
  expect_difference(g.rows / w.rows, 0, want);
  expect_difference(g.columns / w.columns, 1, want);
}

TEST(Regularizer, GroupNormPullsTheWeakestUnitsSixteenTimesAsHard) {
  const auto model = network();
  const auto& params = model.weights.params;
  std::vector<double> norms;
  for (const double mean : mean_squares(params)) norms.push_back(std::sqrt(mean));
  const auto [low, high] = std::minmax_element(norms.begin(), norms.end());
  std::vector<double> want;
  for (const double norm : norms) want.push_back(1e-3 * std::pow(2, 4 * (*high - norm) / (*high - *low)));
  const auto regularizer = refreshed({.penalty = Penalty::kGroupNorm, .strength = 1e-3}, model);
  expect_coefficients(added(regularizer, params), params, want);
  EXPECT_NEAR(*std::max_element(want.begin(), want.end()), 16e-3, 1e-12);
}

TEST(Regularizer, GrowingAddsByWeaknessEveryEpoch) {
  const auto model = network();
  const auto& params = model.weights.params;
  auto regularizer = refreshed({.penalty = Penalty::kGrowing, .strength = 1e-4, .growth = 1e-5}, model);
  const auto squares = mean_squares(params);
  const auto [low, high] = std::minmax_element(squares.begin(), squares.end());
  expect_coefficients(added(regularizer, params), params, std::vector<double>(squares.size(), 1e-4));
  regularizer.refresh(model.weights, 2);
  regularizer.refresh(model.weights, 1);
  std::vector<double> want;
  for (const double s : squares) want.push_back(1e-4 + 3e-5 * (*high - s) / (*high - *low));
  expect_coefficients(added(regularizer, params), params, want);
}

TEST(Regularizer, GroupLassoPullsByUnitDirection) {
  const auto model = network();
  const auto& params = model.weights.params;
  std::vector<double> want;
  for (const double mean : mean_squares(params)) want.push_back(1e-3 / std::sqrt(3 * mean + 1e-4));
  expect_coefficients(added(refreshed({.penalty = Penalty::kGroupLasso, .strength = 1e-3}, model), params), params,
                      want);
}

TEST(Regularizer, GroupLassoTakesItsShareOfTheFirstLoss) {
  const auto model = network();
  const auto regularizer = refreshed(
      {.penalty = Penalty::kGroupLasso, .strength = 0, .loss_share = 0.2, .first_loss = std::log(10.0)}, model);
  const double strength = regularizer.state()["strength"].item<double>();
  double norms = 0;
  ImportanceOptions sums{.reduction = Reduction::kSum, .normalizer = Normalizer::kNone};
  const auto groups = channels::Analysis(model.program.graph()).removable();
  for (const auto& scores : make_importance(sums, model.program.graph())->score(groups, model.weights)) {
    for (const double score : scores) norms += std::sqrt(score);
  }
  EXPECT_NEAR(strength * norms / (strength * norms + std::log(10.0)), 0.2, 1e-12);
}

// Elsewhere penalties add as much as otherwise, bit for bit.
TEST(Regularizer, AddsNothingForIgnoredLayers) {
  const auto model = network();
  const auto& params = model.weights.params;
  const std::string ignored = "layer1.0.conv1";
  const std::set<std::string> of_group{ignored + ".weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias",
                                       "layer1.0.conv2.weight"};
  for (const Penalty penalty :
       {Penalty::kBnScale, Penalty::kGroupBnScale, Penalty::kGroupNorm, Penalty::kGrowing, Penalty::kGroupLasso}) {
    const auto whole = added(refreshed({.penalty = penalty, .strength = 0.01}, model), params);
    const auto some = added(refreshed({.penalty = penalty, .strength = 0.01, .ignore = {ignored}}, model), params);
    EXPECT_GT(whole["layer1.0.bn1.weight"].count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(some["layer1.0.bn1.weight"].count_nonzero().item<int64_t>(), 0);
    const bool of_scales = penalty == Penalty::kBnScale || penalty == Penalty::kGroupBnScale;
    EXPECT_EQ(at::equal(whole[ignored + ".weight"], some[ignored + ".weight"]), of_scales);
    for (const auto& item : whole) {
      if (of_group.contains(item.key())) continue;
      EXPECT_TRUE(at::equal(item.value(), some[item.key()])) << item.key();
    }
  }
  EXPECT_THAT([&] { refreshed({.penalty = Penalty::kGroupNorm, .ignore = {"nothing"}}, model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`ignore` nothing: no group or layer")));
}

TEST(Regularizer, GroupLassoWithNothingToChooseItsStrengthByIsRefused) {
  const auto model = network();
  const auto refused = [&](const RegularizerOptions& options) {
    EXPECT_THAT([&] { refreshed(options, model); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("`first_loss` above 0 and a `loss_share` in (0, 1)")));
  };
  refused({.penalty = Penalty::kGroupLasso, .strength = usual_strength(Penalty::kGroupLasso)});
  refused({.penalty = Penalty::kGroupLasso, .strength = 0, .loss_share = 1, .first_loss = 2.3});
}

TEST(Regularizer, ScalesOfBatchNormsAreDrawnToZero) {
  const auto model = network();
  const auto& params = model.weights.params;
  const auto plain = added(refreshed({.penalty = Penalty::kBnScale, .strength = 0.01}, model), params);
  const auto grouped = added(refreshed({.penalty = Penalty::kGroupBnScale, .strength = 0.01}, model), params);
  for (const auto& item : params) {
    const bool scale = item.key().find("bn") != std::string::npos && item.key().ends_with("weight");
    EXPECT_EQ(plain[item.key()].any().item<bool>(),
              scale || item.key().find("downsample.1.weight") != std::string::npos)
        << item.key();
  }
  const at::Tensor gamma = params["layer1.0.bn1.weight"].detach();
  EXPECT_TRUE(at::allclose(plain["layer1.0.bn1.weight"], 0.01 * gamma.sign()));
  EXPECT_TRUE(at::allclose(grouped["layer1.0.bn1.weight"], 0.01 * gamma / (gamma.square() + 1e-9).sqrt()));
  EXPECT_FALSE(grouped["layer1.0.conv1.weight"].any().item<bool>());
}

TEST(Regularizer, IsTheSameInEveryMemoryLayoutAndScalesWithItsFactor) {
  const auto model = network();
  auto other = network();
  for (auto& item : other.weights.params) {
    if (item.value().dim() == 4) {
      item.value() = item.value().detach().contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    }
  }
  const RegularizerOptions options{.penalty = Penalty::kGroupNorm};
  const auto rows_first = added(refreshed(options, model), model.weights.params, 0.5);
  const auto channels_last = added(refreshed(options, other), other.weights.params);
  for (const auto& item : rows_first) {
    EXPECT_TRUE(at::allclose(2 * item.value(), channels_last[item.key()], 1e-5, 1e-12)) << item.key();
  }
}

TEST(Regularizer, EqualUnitsAndZeroWeightsStayFinite) {
  auto model = network(at::kFloat);
  for (const auto penalty : {Penalty::kGroupNorm, Penalty::kGrowing, Penalty::kGroupLasso, Penalty::kGroupBnScale}) {
    for (const double value : {0.0, 0.5}) {
      for (auto& item : model.weights.params) item.value().detach().fill_(value);
      for (const auto& item : added(refreshed({.penalty = penalty, .strength = 1e-3}, model), model.weights.params)) {
        EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << item.key();
      }
    }
  }
}

TEST(Regularizer, AfterACutWhatIsLeftKeepsItsCoefficients) {
  const auto model = network();
  const auto groups = channels::Analysis(model.program.graph()).removable();
  sparsity::Masks masks;
  for (const auto& group : groups) {
    at::Tensor mask = at::ones({group.size}, at::kBool);
    mask.narrow(0, 0, group.size / 2).fill_(false);
    masks.insert(group.name, mask);
  }
  const auto cut = sparsity::make_cut(groups, masks, sparsity::shapes_of(model.weights));
  auto regularizer = refreshed({.penalty = Penalty::kGroupNorm}, model);
  TensorDict want = added(regularizer, model.weights.params);
  sparsity::apply_cut(want, cut);
  TensorDict params = model.weights.params;
  TensorDict small;
  for (const auto& item : params) small.insert(item.key(), item.value());
  sparsity::apply_cut(small, cut);
  regularizer.cut(channels::cut_graph(model.program, cut), cut);
  const auto got = added(regularizer, small);
  for (const auto& item : want) EXPECT_TRUE(at::allclose(got[item.key()], item.value())) << item.key();
  Regularizer again({.penalty = Penalty::kGroupNorm}, channels::cut_graph(model.program, cut));
  again.load(regularizer.state());
  for (const auto& item : added(again, small)) EXPECT_TRUE(at::equal(item.value(), got[item.key()])) << item.key();
}

/// a makes two groups, of which the second is named after where it begins; b reads both.
TEST(Regularizer, AfterACutTheSameGroupsAreIgnored) {
  program::Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/chunk_two.pt2");
  const channels::Analysis analysis(model.program);
  sparsity::Masks masks = sparsity::full_masks(analysis.removable());
  masks["a"][0].fill_(false);
  const auto cut = sparsity::make_cut(analysis.removable(), masks, sparsity::shapes_of(model.weights));
  Regularizer regularizer({.penalty = Penalty::kGroupNorm, .ignore = {"a[4]"}}, analysis);
  regularizer.refresh(model.weights, 0);
  const channels::Analysis smaller(channels::cut_graph(model.program, cut));
  regularizer.cut(smaller, cut);
  sparsity::apply_cut(model.weights, cut);
  regularizer.refresh(model.weights, 1);
  const at::Tensor rows = regularizer.state()["0/a.weight"];
  EXPECT_TRUE(rows.slice(0, 0, 3).gt(0).all().item<bool>());
  EXPECT_TRUE(rows.slice(0, 3).eq(0).all().item<bool>());
}

/// Positions of a flattened layer's columns lie far apart: none may be looked for beyond the end.
TEST(Regularizer, RefusesWeightsOfAnotherSize) {
  program::Builder net(0);
  const program::ValueId x = net.relu(net.conv2d("a", net.input("x", {3, 8, 8}), {.out = 8}));
  program::Model model = std::move(net).finish(net.linear("fc", net.flatten(x), {.out = 3}));
  const channels::Analysis analysis(model.program);
  auto masks = sparsity::full_masks(analysis.removable());
  masks["a"].slice(0, 0, 4).fill_(false);
  for (const Penalty penalty : {Penalty::kGroupNorm, Penalty::kGrowing, Penalty::kGroupLasso}) {
    Regularizer regularizer({.penalty = penalty, .strength = 0.1}, analysis);
    regularizer.refresh(model.weights, 0);
    Weights smaller = model.weights;
    sparsity::apply_cut(smaller, sparsity::make_cut(analysis.removable(), masks, sparsity::shapes_of(model.weights)));
    EXPECT_THAT([&] { regularizer.refresh(smaller, 1); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("they were made before it was pruned")));
  }
}

TEST(Regularizer, StatesThatAreNoneAreRefused) {
  Regularizer regularizer({.penalty = Penalty::kGroupNorm}, network().program.graph());
  const auto told = [&](const std::string& name, const at::Tensor& value) {
    TensorDict state;
    state.insert(name, value);
    return tests::message([&] { regularizer.load(state); });
  };
  const at::Tensor numbers = at::ones({16}, at::kDouble);
  EXPECT_EQ(told("0/conv1.weight", numbers), "no exception");
  for (const std::string name : {"conv1.weight", "2/conv1.weight", "x/conv1.weight", "strength"}) {
    EXPECT_THAT(told(name, numbers), HasSubstr("tensor " + name + " is none of a penalty's")) << name;
  }
  EXPECT_THAT(told("0/conv1.weight", numbers.to(at::kFloat)), HasSubstr("none of a penalty's"));
}

/// A classifier alone: nothing that could be removed.
TEST(Regularizer, PenaltiesOfWhatNoneCanRemoveAreRefused) {
  program::Builder net(0);
  const auto model = std::move(net).finish(net.linear("fc", net.input("x", {3}), {.out = 2}));
  for (const Penalty penalty : {Penalty::kGroupNorm, Penalty::kGrowing, Penalty::kGroupLasso}) {
    EXPECT_THAT([&] { Regularizer({.penalty = penalty}, model.program.graph()); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("`sparse`: the network has no channels")));
  }
  EXPECT_THAT([&] { Regularizer({.penalty = Penalty::kBnScale}, model.program.graph()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`sparse`: the network has no batch norm")));
  EXPECT_NO_THROW(Regularizer({}, model.program.graph()));
}

TEST(Regularizer, UnknownPenaltiesAreRefused) {
  EXPECT_THAT([] { penalty_named("lasso"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`sparse`: got 'lasso', wanted one of none, bn_scale")));
}

}  // namespace
}  // namespace prunex::prune
