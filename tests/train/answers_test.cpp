// Counts and confidences against loops over the logits.
#include "prunex/train/images/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "prunex/comm/connect.h"
#include "prunex/program/builder.h"
#include "prunex/train/evaluate.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

/// A linear layer over seven classes.
program::Model seven_classes() {
  program::Builder builder(8);
  const auto x = builder.input("x", {3, kSide, kSide});
  return std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = 7}));
}

TEST(Answers, MayBeOutputsThatAreNoClasses) {
  at::NoGradGuard no_grad;
  const auto model = seven_classes();
  model.weights.params["fc.bias"][6].fill_(100);  // of labels 0 to 4
  const auto images = noise_images(300);
  const auto all = answers(model.program, model.weights, images);
  EXPECT_EQ(all.accuracy(), 0);
  for (const auto& [pair, count] : all.counts) EXPECT_EQ(pair.second, 6);
  EXPECT_EQ(all.images(), 300);
  const auto json = nlohmann::json::parse(answers_json(all, images));
  EXPECT_EQ(json.at("classes").size(), 7);
  EXPECT_EQ(json.at("classes").back(), "6");
}

TEST(Answers, CountWhatEveryImageIsTakenFor) {
  at::NoGradGuard no_grad;
  const auto model = seven_classes();
  auto images = noise_images(300);  // one whole batch of 256 and a part
  images.classes = 7;
  const at::Tensor logits =
      model.program.run({normalised(images, 0, 300)}, model.weights, program::Mode::kEval).front();
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  int64_t in_top_5 = 0, wrong = 0;
  double worst = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const auto label = images.labels[i].item<int64_t>(), answer = logits[i].argmax().item<int64_t>();
    ++counts[{label, answer}];
    if (logits[i].gt(logits[i][label]).sum().item<int64_t>() < 5) ++in_top_5;
    if (answer == label) continue;
    ++wrong;
    worst = std::max(worst, at::softmax(logits[i], 0)[answer].item<double>());
  }
  const Answers all = answers(model.program, model.weights, images, 1000);
  EXPECT_EQ(all.counts, counts);
  EXPECT_EQ(all.images(), 300);
  EXPECT_EQ(all.in_top_5, in_top_5);
  EXPECT_LT(all.in_top_5, 300);
  EXPECT_EQ(all.top5_accuracy(), static_cast<double>(in_top_5) / 300);
  ASSERT_EQ(static_cast<int64_t>(all.mistakes.size()), wrong);
  EXPECT_NEAR(all.mistakes.front().confidence, worst, 1e-6);
  for (size_t i = 1; i < all.mistakes.size(); ++i) {
    EXPECT_GE(all.mistakes[i - 1].confidence, all.mistakes[i].confidence);
  }

  EXPECT_TRUE(all.mistakes.front().png.starts_with("iVBORw0KGgo"));  // a PNG's first eight bytes

  const Answers few = answers(model.program, model.weights, images, 3);
  ASSERT_EQ(few.mistakes.size(), 3U);
  EXPECT_EQ(few.mistakes[2].image, all.mistakes[2].image);
}

TEST(Answers, AgreeWithTheScore) {
  const auto model = small_network();
  const auto images = noise_images(270);
  const Answers all = answers(model.program, model.weights, images);
  const Evaluation score = evaluate(model.program, model.weights, images);
  EXPECT_DOUBLE_EQ(all.accuracy(), score.accuracy);
  EXPECT_NEAR(all.loss, score.loss, 1e-6);
  EXPECT_FALSE(all.top5_accuracy());  // of five classes
}

TEST(Answers, OfAllRanksTogetherAreThoseOfOne) {
  const auto model = small_network();
  const auto images = noise_images(270);
  const Answers alone = answers(model.program, model.weights, images);
  comm::run_ranks(1, 3, [&](comm::Hierarchy& ranks) {
    const Answers all = answers(model.program, model.weights, images, *ranks.world);
    EXPECT_EQ(all.counts, alone.counts);
    EXPECT_EQ(all.in_top_5, alone.in_top_5);
    EXPECT_EQ(all.outputs, alone.outputs);
    EXPECT_NEAR(all.loss, alone.loss, 1e-6);
    ASSERT_EQ(all.mistakes.size(), alone.mistakes.size());
    for (size_t i = 0; i < all.mistakes.size(); ++i) {
      EXPECT_EQ(all.mistakes[i].image, alone.mistakes[i].image);
      EXPECT_EQ(all.mistakes[i].png, alone.mistakes[i].png);
    }
  });
}

/// A table of all pairs would take 80 GB.
TEST(Answers, OfManyClassesTakeNoTableOfAllPairs) {
  const auto model = small_network();
  auto images = noise_images(8);
  images.classes = 100'000;
  const Answers all = answers(model.program, model.weights, images);
  EXPECT_EQ(all.images(), 8);
  EXPECT_EQ(all.outputs, 100'000);
}

TEST(Answers, AreWrittenWithoutEmptyPairs) {
  data::Dataset images{.name = "two", .classes = 2, .class_names = {"cat", "dog"}};
  Answers all{.loss = 0.5, .counts = {{{0, 0}, 3}, {{1, 0}, 1}}, .outputs = 2, .in_top_5 = 4};
  all.mistakes = {{.image = 9, .label = 1, .answer = 0, .confidence = 0.75}};
  EXPECT_EQ(nlohmann::json::parse(answers_json(all, images)),
            nlohmann::json::parse(R"({"images": 4, "accuracy": 0.75, "loss": 0.5, "classes": ["cat", "dog"],
      "counts": [[0, 0, 3], [1, 0, 1]], "mistakes": [{"image": 9, "label": 1, "answer": 0, "confidence": 0.75}]})"));
}

}  // namespace
}  // namespace prunex::train
