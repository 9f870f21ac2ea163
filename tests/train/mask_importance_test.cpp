// H-SADMM's masks by importances other than the norm.
#include "prunex/train/strategy_choice.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/comm/communicator.h"
#include "prunex/io/safetensors.h"
#include "prunex/prune/training_groups.h"
#include "prunex/train/batch_statistics.h"
#include "prunex/train/options.h"
#include "prunex/train/pruning/by_importance.h"
#include "prunex/train/pruning/mask_choice.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using tests::message;

TrainOptions ranked_by(const std::string& importance) {
  TrainOptions options;
  options.mask_importance = importance;
  options.pruning.importance_samples = 12;
  return options;
}

std::vector<sparsity::Group> groups_of(const program::Model& model, const std::string& words = "coupled") {
  return prune::training_groups(model.program.graph(), words, 0.5);
}

TEST(MaskScorer, ThereIsNoneForTheNormOrWithoutGroups) {
  const auto model = small_network();
  EXPECT_FALSE(mask_scorer(ranked_by("norm"), groups_of(model), model, noise_images(12), noise_images(12)));
  EXPECT_FALSE(mask_scorer(ranked_by("l1"), {}, model, noise_images(12), noise_images(12)));
}

// Whoever shares the images, the scores are those of one rank that has all.
TEST(MaskScorer, ScoresAsPruningDoesWhateverTheNumberOfRanks) {
  const auto model = small_network();
  const auto groups = groups_of(model);
  const auto images = noise_images(12);
  for (const auto& name : prune::importance_names()) {
    auto importance = prune::importance_named(name);
    importance.normalizer = prune::Normalizer::kNone;
    const auto alone = comm::make_solo("world");
    const auto calibration = calibration_images(images, importance.seed);
    program::Model estimated = model;
    estimated.weights = with_estimated_statistics(model.program, model.weights, calibration, *alone);
    const auto want = score_by_importance(
        importance, groups, estimated, [&] { return images; }, *alone);
    comm::run_ranks(1, 3, [&](comm::Hierarchy& ranks) {
      const at::NoGradGuard as_in_an_exchange;
      const auto scores = mask_scorer(ranked_by(name), groups, model, images, calibration)(model.weights, *ranks.node);
      ASSERT_EQ(scores.size(), groups.size());
      for (size_t g = 0; g < groups.size(); ++g) {
        ASSERT_EQ(scores[g].numel(), groups[g].size);
        EXPECT_TRUE(at::allclose(scores[g], at::tensor(want[g], at::kDouble), 1e-4, 1e-9)) << name;
      }
    });
  }
}

TEST(MaskScorer, RefusesGroupsItCannotRank) {
  program::Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.relu(builder.conv2d("conv1", x, {.out = 6, .kernel = 3, .padding = 1}));
  x = builder.relu(builder.conv2d("conv2", x, {.out = 6, .kernel = 3, .padding = 1}));
  const auto model = std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses}));
  const auto refusal = [&](const std::string& name, const std::string& words) {
    return message(
        [&] { mask_scorer(ranked_by(name), groups_of(model, words), model, noise_images(12), noise_images(12)); });
  };
  EXPECT_EQ(refusal("l2", "coupled"), "no exception");
  EXPECT_THAT(refusal("bn_scale", "coupled"), HasSubstr("`mask_importance`: got bn_scale, which cannot rank group"));
  EXPECT_EQ(refusal("activation", "coupled"), "no exception");
  EXPECT_THAT(refusal("activation", "filter"), HasSubstr("got activation, which cannot rank group"));
  EXPECT_THAT(refusal("obdc", "channel"), HasSubstr("got obdc, which cannot rank group"));
  EXPECT_THAT(refusal("l2", "shape"), HasSubstr("`mask_importance`: got l2, wanted norm for group 'shape:"));
  TrainOptions options = ranked_by("taylor");
  options.nodes = 13;
  EXPECT_THAT(message([&] { mask_scorer(options, groups_of(model), model, noise_images(12), noise_images(12)); }),
              HasSubstr("`importance_samples`: got 12 images, wanted one for each of the 13 ranks"));
}

TEST(MaskImportance, IsCheckedWithTheOtherOptions) {
  const auto refusal = [](const std::string& strategy, const std::string& importance) {
    TrainOptions options = ranked_by(importance);
    options.strategy = strategy;
    return message([&] { validate(options); });
  };
  EXPECT_EQ(refusal("hsadmm", "taylor"), "no exception");
  EXPECT_EQ(refusal("ddp", "norm"), "no exception");
  EXPECT_THAT(refusal("hsadmm", "size"), HasSubstr("`mask_importance`: got 'size', wanted one of"));
}

// The masks freeze at the fourth exchange; resumed before that, a run goes on to the bit.
TEST(MaskImportance, RunsShrinkAndGoOnToTheBit) {
  for (const char* strategy : {"hsadmm", "hsadmm_flat", "one_shot"}) {
    const tests::Scratch scratch;
    TrainOptions options = tiny_run(160, 6);
    options.strategy = strategy;
    options.mask_importance = "taylor";
    if (strategy != std::string("hsadmm_flat")) options.exchange.payload = strategies::Payload::kBf16;
    options.pruning.importance_samples = 16;
    options.nodes = 2;
    options.ranks_per_node = {2};
    options.run_dir = scratch / "run";
    options.checkpoint_every = 2;
    const Summary summary = run_to_end(options);
    EXPECT_LT(summary.parameters_compact, summary.parameters_dense) << strategy;
    const auto lines = lines_without_seconds(options.run_dir);
    const auto product = io::read_safetensors(options.run_dir + "/model.safetensors").tensors;

    TrainOptions other = options;
    other.mask_importance = "norm";
    other.run_dir = scratch / "norm";
    run_to_end(other);
    EXPECT_NE(lines_without_seconds(other.run_dir), lines) << strategy;

    options.checkpoint_every = 3;  // 3 and 6 are kept
    options.run_dir = scratch / "part";
    run_to_end(options);
    options.resume = options.run_dir;
    options.resume_exchange = 3;
    run_to_end(options);
    EXPECT_EQ(lines_without_seconds(options.run_dir), lines) << strategy;
    for (const auto& item : io::read_safetensors(options.run_dir + "/model.safetensors").tensors) {
      ASSERT_TRUE(at::equal(item.value(), product[item.key()])) << strategy << " " << item.key();
    }
  }
}

}  // namespace
}  // namespace prunex::train
