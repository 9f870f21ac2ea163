// Scores of units against Torch-Pruning's (tests/data/importance) and against sums written down by hand.
#include "prunex/prune/importance.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "prunex/channels/analysis.h"
#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "tests/channels/words.h"

namespace prunex::prune {
namespace {

using nlohmann::json;
using program::Builder;
using program::Model;
using testing::DoubleNear;
using testing::ElementsAre;

const std::string kFolder = PRUNEX_TEST_DATA "/importance/";

Normalizer normalizer(const std::string& word) {
  const std::map<std::string, Normalizer> words{{"None", Normalizer::kNone},
                                                {"sum", Normalizer::kSum},
                                                {"max", Normalizer::kMax},
                                                {"standarization", Normalizer::kRange},
                                                {"gaussian", Normalizer::kGaussian}};
  return words.at(word);
}

Reduction reduction(const std::string& word) {
  const std::map<std::string, Reduction> words{{"mean", Reduction::kMean},
                                               {"sum", Reduction::kSum},
                                               {"max", Reduction::kMax},
                                               {"prod", Reduction::kProduct},
                                               {"first", Reduction::kFirst}};
  return words.at(word);
}

/// "l2 first", "l2 normalizer max", "taylor bias": a name and what differs from its defaults.
ImportanceOptions parse(const std::string& label) {
  const std::string name = label.substr(0, label.find(' '));
  const std::string last = label.substr(label.rfind(' ') + 1);
  ImportanceOptions options = importance_named(name == "l3" ? "l2" : name);
  if (name == "l3") options.power = 3;
  options.tp_compat = true;
  if (last == name) return options;
  if (label.find(" normalizer ") != std::string::npos) {
    options.normalizer = normalizer(last);
  } else if (last == "bias") {
    options.bias = true;
  } else if (last == "multivariable") {
    options.signed_sum = true;
  } else {
    options.reduction = reduction(last);
  }
  return options;
}

TensorDict gradients(const json& values, const Weights& weights) {
  TensorDict gradients;
  for (const auto& item : weights.params) {
    const auto numbers = values.at(item.key()).get<std::vector<double>>();
    gradients.insert(item.key(), at::tensor(numbers, at::kDouble).to(at::kFloat).view(item.value().sizes()));
  }
  return gradients;
}

void expect_close(const UnitScores& actual, const json& expected, const std::string& what) {
  if (expected.is_null()) {
    EXPECT_TRUE(actual.empty()) << what;
    return;
  }
  ASSERT_EQ(actual.size(), expected.size()) << what;
  // A mean or minimum was subtracted: single precision is relative to the scores before.
  const double scale = what.find("gaussian") != std::string::npos || what.find("standar") != std::string::npos ? 1 : 0;
  for (size_t unit = 0; unit < actual.size(); ++unit) {
    const double wanted = expected[unit];
    EXPECT_NEAR(actual[unit], wanted, 1e-5 * std::max(std::abs(wanted), scale)) << what << ", unit " << unit;
  }
}

void expect_torch_prunings_scores(const std::string& net) {
  const json measured = json::parse(std::ifstream(kFolder + "scores.json")).at(net);
  const Model model = program::read_pt2(kFolder + net + ".pt2");
  const auto& graph = model.program.graph();
  const auto groups = channels::Analysis(graph).removable();
  for (const auto& [label, expected] : measured.at("scores").items()) {
    const auto importance = make_importance(parse(label), graph, gradients(measured.at("gradients"), model.weights));
    const auto scores = importance->score(groups, model.weights);
    ASSERT_FALSE(expected.empty());
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!expected.contains(groups[group].name)) continue;
      expect_close(scores[group], expected.at(groups[group].name), net + ", " + label + ", " + groups[group].name);
    }
  }
}

TEST(Importance, IsTorchPruningsForStreamsDepthwiseAndFlattenedLayers) {
  expect_torch_prunings_scores("streams");
}

TEST(Importance, IsTorchPruningsForGroupedConvolutions) {
  expect_torch_prunings_scores("grouped");
}

/// conv a (2 filters) -> batch norm -> depthwise -> linear of 3 outputs over 2x2 positions, with round weights.
Model small_net() {
  Builder net(0);
  program::ValueId x = net.batch_norm("norm", net.conv2d("a", net.input("x", {1, 2, 2}), {.out = 2}));
  x = net.conv2d("deep", net.relu(x), {.out = 2, .groups = 2});
  Model model = std::move(net).finish(net.linear("fc", net.flatten(x), {.out = 3}));
  const auto set = [&](const std::string& name, const std::vector<double>& values) {
    at::Tensor& weight = model.weights.params[name];
    weight = at::tensor(values, at::kFloat).view(weight.sizes());
  };
  set("a.weight", {1, -2});
  set("norm.weight", {3, 1});
  set("deep.weight", {-1, 4});
  set("fc.weight", {1, 0, 0, 1, /**/ 2, 0, 0, 0, /*-*/ 0, 1, 0, 0, /**/ 0, 3, 0, 0, /*-*/ 1, 1, 0, 0, /**/ 0, 0, 0, 1});
  return model;
}

UnitScores score(const Model& model, ImportanceOptions options, TensorDict evidence = TensorDict()) {
  options.normalizer = Normalizer::kNone;
  const auto groups = channels::Analysis(model.program.graph()).removable();
  EXPECT_EQ(groups.size(), 1u);
  return make_importance(options, model.program.graph(), std::move(evidence))->score(groups, model.weights).at(0);
}

// a: 1, 2; norm: 3, 1; deep: 1, 4; fc: 5 and 6 ones over the columns 0-3 and 4-7.
TEST(Importance, CountsEveryLayerThatReadsOrMakesAUnit) {
  EXPECT_THAT(score(small_net(), importance_named("l1")), ElementsAre((1 + 3 + 1 + 5) / 4.0, (2 + 1 + 4 + 6) / 4.0));
  ImportanceOptions options = importance_named("l1");
  options.tp_compat = true;  // depthwise convolutions have no say
  EXPECT_THAT(score(small_net(), options), ElementsAre((1 + 3 + 5) / 3.0, (2 + 1 + 6) / 3.0));
  options = importance_named("l2");
  options.reduction = Reduction::kFirst;
  EXPECT_THAT(score(small_net(), options), ElementsAre(1, 4));
}

// As where that layer is frozen.
TEST(Importance, OfTheFirstLayerAloneIsNoneWithoutIt) {
  ImportanceOptions options = importance_named("taylor");
  options.reduction = Reduction::kFirst;
  TensorDict gradients;
  gradients.insert("norm.weight", at::full({2}, -2.0));
  EXPECT_THAT(score(small_net(), options, gradients), ElementsAre());
}

TEST(Importance, OfActivationsOfAnotherNetworkIsRefused) {
  TensorDict inputs;
  inputs.insert("fc.weight", at::ones({16}));
  EXPECT_THAT([&] { score(small_net(), importance_named("activation"), inputs); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("`evidence`: got that of 16 inputs for fc.weight, which reads 8")));
}

// Molchanov et al. 2019: the batch norm's scale has a gradient, too.
TEST(Importance, OfTaylorSeesBatchNorm) {
  const Model model = small_net();
  TensorDict gradients;
  for (const auto& item : model.weights.params) gradients.insert(item.key(), at::zeros_like(item.value()));
  gradients["norm.weight"].fill_(-2);
  EXPECT_THAT(score(model, importance_named("taylor"), gradients), ElementsAre(6 / 4.0, 2 / 4.0));
  ImportanceOptions options = importance_named("taylor");
  options.tp_compat = true;
  EXPECT_THAT(score(model, options, gradients), ElementsAre(0, 0));
}

// Rows only, plus 1e-10 w^2: a's rows are 1 and -2, deep's -1 and 4.
TEST(Importance, OfObdcReadsRows) {
  const Model model = small_net();
  TensorDict fisher;
  for (const auto& item : model.weights.params) fisher.insert(item.key(), at::full_like(item.value(), 0.5));
  EXPECT_THAT(score(model, importance_named("obdc"), fisher), ElementsAre(DoubleNear(0.5, 1e-6), DoubleNear(5, 1e-6)));
}

// fc reads two units at four positions each.
TEST(Importance, OfActivationsReadsInputs) {
  TensorDict inputs;
  inputs.insert("fc.weight", at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kFloat));
  EXPECT_THAT(score(small_net(), importance_named("activation"), inputs), ElementsAre(10, 26));
  EXPECT_THAT(score(small_net(), importance_named("activation")), ElementsAre());
}

// Distances of the raw weights: a 3; deep 5; fc's blocks (1 0 0 1 | 0 1 0 0 | 1 1 0 0) and (2 0 0 0 | 0 3 0 0 | 0 0 0
// 1).
TEST(Importance, OfGeometricMedianIsTheSumOfDistances) {
  const double blocks = std::sqrt(1 + 1 + 4 + 1 + 1 + 1);
  EXPECT_THAT(score(small_net(), importance_named("fpgm")),
              ElementsAre(DoubleNear((3 + 5 + blocks) / 3, 1e-5), DoubleNear((3 + 5 + blocks) / 3, 1e-5)));
}

TEST(Importance, OfRandomDependsOnSeedAndGroupOnly) {
  const Model model = small_net();
  ImportanceOptions options = importance_named("random");
  const auto first = score(model, options);
  EXPECT_EQ(score(model, options), first);
  options.seed = 1;
  EXPECT_NE(score(model, options), first);
  for (double value : first) EXPECT_TRUE(value >= 0 && value < 1);
}

// Lee et al. 2021, eq. 2: 1/10, 2/9, 3/7, 4/4.
TEST(Importance, LampDividesByWhatIsNotSmaller) {
  UnitScores scores{3, 1, 4, 2};
  normalize(scores, Normalizer::kLamp);
  EXPECT_THAT(scores, ElementsAre(3 / 7.0, 1 / 10.0, 1, 2 / 9.0));
}

TEST(Importance, NormalizersMakeNoNaNOfEqualScores) {
  for (auto normalizer : {Normalizer::kMean, Normalizer::kSum, Normalizer::kMax, Normalizer::kRange,
                          Normalizer::kGaussian, Normalizer::kMedian, Normalizer::kLamp}) {
    for (double value : {0.0, 2.0}) {
      UnitScores scores{value, value};
      normalize(scores, normalizer);
      for (double score : scores) EXPECT_TRUE(std::isfinite(score));
    }
  }
  UnitScores one{5};
  normalize(one, Normalizer::kGaussian);
  EXPECT_THAT(one, ElementsAre(0));
}

TEST(Importance, CondensedWeightsHaveTheSameScores) {
  const Model model = program::read_pt2(kFolder + "streams.pt2");
  const auto groups = channels::Analysis(model.program.graph()).removable();
  for (const char* name : {"l1", "l2", "bn_scale", "lamp"}) {
    const auto importance = make_importance(importance_named(name), model.program.graph());
    const auto expected = importance->score(groups, model.weights);
    const auto actual = importance->score(groups, importance->condensed(model.weights));
    for (size_t group = 0; group < groups.size(); ++group) expect_close(actual[group], expected[group], name);
  }
}

// The sums must not depend on how the memory lies: channels_last and transposed against contiguous.
TEST(Importance, DoesNotDependOnTheLayout) {
  const Model model = program::read_pt2(kFolder + "streams.pt2");
  const auto groups = channels::Analysis(model.program.graph()).removable();
  const auto importance = make_importance(importance_named("l2"), model.program.graph());
  Weights other = model.weights;
  for (auto& item : other.params) {
    if (item.value().dim() == 4) item.value() = item.value().contiguous(at::MemoryFormat::ChannelsLast);
    if (item.value().dim() == 2) item.value() = item.value().t().contiguous().t();
  }
  const auto expected = importance->score(groups, model.weights), actual = importance->score(groups, other);
  for (size_t group = 0; group < groups.size(); ++group) expect_close(actual[group], expected[group], "layout");
}

TEST(Importance, RefusesNamesItDoesNotKnow) {
  EXPECT_THROW(importance_named("l7"), std::invalid_argument);
}

}  // namespace
}  // namespace prunex::prune
