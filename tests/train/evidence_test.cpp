// Evidence against the closed form of the last layer's gradient, and against plain calls.
#include "prunex/train/pruning/evidence.h"
#include "prunex/train/pruning/by_importance.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "prunex/comm/communicator.h"
#include "prunex/comm/connect.h"
#include "prunex/program/pt2.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using prune::Criterion;

/// What conv2 and fc read; batch norm of a new network divides by sqrt(1 + 1e-5).
struct Inputs {
  at::Tensor conv2, fc;
};

Inputs inputs_by_hand(const at::Tensor& images, const TensorDict& p) {
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return x / std::sqrt(1 + 1e-5) * p[name + ".weight"].view({-1, 1, 1}) + p[name + ".bias"].view({-1, 1, 1});
  };
  const at::Tensor first = norm(at::conv2d(images, p["conv1.weight"], {}, 1, 1), "bn1").relu();
  const at::Tensor second = norm(at::conv2d(first, p["conv2.weight"], {}, 2, 1), "bn2").relu();
  return {first, second.mean(at::IntArrayRef{2, 3})};
}

/// Per image: (softmax - label) x input, N x classes x channels.
at::Tensor fc_gradients(const program::Model& model, const data::Dataset& images) {
  const auto& p = model.weights.params;
  const at::Tensor x = inputs_by_hand(normalised(images, 0, images.size()), p).fc;
  const at::Tensor logits = at::linear(x, p["fc.weight"], p["fc.bias"]);
  return (logits.softmax(1) - at::one_hot(images.labels, kClasses)).unsqueeze(2) * x.unsqueeze(1);
}

TensorDict alone(Criterion criterion, const program::Model& model, const data::Dataset& images, uint64_t seed = 0) {
  const auto world = comm::make_solo("world");
  return collect_evidence(criterion, model, images, seed, *world);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected.detach(), 1e-4, 1e-6)) << actual << expected;
}

TEST(Evidence, OfTaylorIsTheMeanGradient) {
  const auto model = small_network();
  const auto images = noise_images(70);  // a batch of 64 and a part
  expect_close(alone(Criterion::kTaylor, model, images)["fc.weight"], fc_gradients(model, images).mean(0));
}

TEST(Evidence, OfHessianIsTheMeanOfSquaresOfSingleImages) {
  const auto model = small_network();
  const auto images = noise_images(9);
  expect_close(alone(Criterion::kHessian, model, images)["fc.weight"], fc_gradients(model, images).square().mean(0));
}

TEST(Evidence, OfObdcIgnoresTheLabelsOfTheData) {
  const auto model = small_network();
  auto images = noise_images(9);
  const TensorDict first = alone(Criterion::kObdc, model, images);
  images.labels = (images.labels + 1).remainder(kClasses);
  EXPECT_TRUE(alone(Criterion::kObdc, model, images)["fc.weight"].equal(first["fc.weight"]));
  EXPECT_FALSE(alone(Criterion::kObdc, model, images, 1)["fc.weight"].equal(first["fc.weight"]));
}

TEST(Evidence, OfActivationsIsTheMeanOfWhatLayersRead) {
  const at::NoGradGuard no_grad;
  const auto model = small_network();
  const auto images = noise_images(70);
  const auto evidence = alone(Criterion::kActivation, model, images);
  const at::Tensor pixels = normalised(images, 0, 70);
  const Inputs inputs = inputs_by_hand(pixels, model.weights.params);
  expect_close(evidence["conv1.weight"], pixels.abs().mean(at::IntArrayRef{0, 2, 3}));
  expect_close(evidence["conv2.weight"], inputs.conv2.abs().mean(at::IntArrayRef{0, 2, 3}));
  expect_close(evidence["fc.weight"], inputs.fc.abs().mean(0));
}

/// Pixels as tokens, all images' in one axis - a - one axis per image - fc.
program::Model network_of_tokens() {
  using program::Builder;
  const auto reshape = [](Builder& builder, program::ValueId x, int64_t last, const program::Shape& shape) {
    return builder.call("aten::reshape",
                        {Builder::tensor("self", x), Builder::literal("shape", std::vector<int64_t>{-1, last})}, shape);
  };
  Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.call("aten::permute",
                   {Builder::tensor("self", x), Builder::literal("dims", std::vector<int64_t>{0, 2, 3, 1})},
                   {{1, true}, {kSide, false}, {kSide, false}, {3, false}});
  constexpr int64_t kTokens = kSide * kSide;
  x = builder.relu(builder.linear("a", reshape(builder, x, 3, {{kTokens, true}, {3, false}}), {.out = 6}));
  x = reshape(builder, x, kTokens * 6, {{1, true}, {kTokens * 6, false}});
  return std::move(builder).finish(builder.linear("fc", x, {.out = kClasses}));
}

TEST(Evidence, OfActivationsIsOfImagesWhereverTheirTokensLie) {
  const auto images = noise_images(70);
  const auto evidence = alone(Criterion::kActivation, network_of_tokens(), images);
  expect_close(evidence["a.weight"], normalised(images, 0, 70).abs().mean(at::IntArrayRef{0, 2, 3}));
}

TEST(Evidence, OfActivationsIsOfLayersWithWeightsOfTheirOwn) {
  const auto model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/weight_norm_conv.pt2");
  const int64_t side = model.program.graph().values[model.program.graph().inputs.at(0)].shape[2].factor;
  auto images = noise_images(4);
  images.images = at::constant_pad_nd(images.images, {0, side - kSide, 0, side - kSide});
  const auto evidence = alone(Criterion::kActivation, model, images);
  EXPECT_TRUE(evidence.contains("b.weight"));
  EXPECT_EQ(evidence.size(), 2) << "that of fc, too";
}

TEST(Evidence, IsThatOfOneRankWhereSeveralShareTheImages) {
  const auto model = small_network();
  const auto images = noise_images(10);
  for (const Criterion criterion :
       {Criterion::kTaylor, Criterion::kHessian, Criterion::kObdc, Criterion::kActivation}) {
    const TensorDict expected = alone(criterion, model, images);
    comm::run_ranks(1, 3, [&](comm::Hierarchy& ranks) {
      const TensorDict shared = collect_evidence(criterion, model, images, 0, *ranks.world);
      ASSERT_EQ(shared.size(), expected.size());
      for (const auto& item : expected) expect_close(shared[item.key()], item.value());
    });
  }
}

TEST(Evidence, LeavesTheModelAlone) {
  const auto model = small_network();
  alone(Criterion::kHessian, model, noise_images(3));
  for (const auto& item : model.weights.params) EXPECT_FALSE(item.value().grad().defined()) << item.key();
}

// Every rank plans by the same evidence, so it prunes the same.
TEST(DataPruning, IsTheSameOnEveryRank) {
  const auto model = small_network();
  const auto images = noise_images(12);
  std::vector<sparsity::Cut> cuts(3);
  comm::run_ranks(3, 1, [&](comm::Hierarchy& ranks) {
    prune::Pruner pruner(model, {.scope = prune::Scope::kGlobal});
    prune_by_importance(
        pruner, prune::importance_named("taylor"), {.share = 0.5}, 2, [&] { return images; }, *ranks.world);
    cuts[ranks.layout.rank] = pruner.cut();
  });
  EXPECT_FALSE(cuts[0].empty());
  EXPECT_EQ(cuts[0], cuts[1]);
  EXPECT_EQ(cuts[0], cuts[2]);
}

}  // namespace
}  // namespace prunex::train
