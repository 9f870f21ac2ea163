// Evaluation and batch-norm statistics against the same network written as plain calls.
#include "prunex/train/evaluate.h"
#include "prunex/train/batch_statistics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "prunex/comm/connect.h"
#include "prunex/data/loader.h"
#include "prunex/program/pt2.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

/// The weights with statistics that are not those of a new network.
Weights used_weights(const program::Model& model) {
  auto generator = at::detail::createCPUGenerator(6);
  Weights weights{model.weights.params, TensorDict()};
  for (const auto& buffer : model.weights.buffers) {
    const bool statistic = buffer.value().is_floating_point();
    weights.buffers.insert(buffer.key(), statistic ? at::rand(buffer.value().sizes(), generator) + 0.5
                                                   : at::full_like(buffer.value(), 17));
  }
  return weights;
}

/// The network by hand; with `statistics`, batch norm normalises by the batch and reports mean and unbiased variance.
at::Tensor by_hand(const at::Tensor& images, const Weights& weights, TensorDict* statistics = nullptr) {
  const auto& p = weights.params;
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    at::Tensor mean = weights.buffers[name + ".running_mean"], var = weights.buffers[name + ".running_var"];
    at::Tensor divisor = var;
    if (statistics != nullptr) {
      std::tie(divisor, mean) = at::var_mean(x, at::IntArrayRef{0, 2, 3}, /*unbiased=*/false);
      statistics->insert(name + ".running_mean", mean);
      statistics->insert(name + ".running_var", x.var(at::IntArrayRef{0, 2, 3}, /*unbiased=*/true));
    }
    const auto per_channel = [](const at::Tensor& t) { return t.view({-1, 1, 1}); };
    return (x - per_channel(mean)) / (per_channel(divisor) + 1e-5).sqrt() * per_channel(p[name + ".weight"]) +
           per_channel(p[name + ".bias"]);
  };
  at::Tensor x = norm(at::conv2d(images, p["conv1.weight"], {}, 1, 1), "bn1").relu();
  x = norm(at::conv2d(x, p["conv2.weight"], {}, 2, 1), "bn2").relu().mean(at::IntArrayRef{2, 3});
  return at::linear(x, p["fc.weight"], p["fc.bias"]);
}

TEST(Evaluate, CountsCorrectAnswersAndAveragesTheLoss) {
  at::NoGradGuard no_grad;
  const auto model = small_network();
  const Weights weights = used_weights(model);
  const auto images = noise_images(300);  // one whole batch of 256 and a part
  const at::Tensor logits = by_hand(normalised(images, 0, 300), weights);
  const auto score = evaluate(model.program, weights, images);
  EXPECT_DOUBLE_EQ(score.accuracy, logits.argmax(1).eq(images.labels).to(at::kDouble).mean().item<double>());
  const at::Tensor chosen = logits.log_softmax(1).gather(1, images.labels.unsqueeze(1));
  EXPECT_NEAR(score.loss, -chosen.to(at::kDouble).mean().item<double>(), 1e-5);
}

TEST(Evaluate, SharedAmongRanksEqualsAlone) {
  const auto model = small_network();
  const Weights weights = used_weights(model);
  for (const int64_t size : {300, 7, 2}) {  // of two images the third rank gets none
    const auto images = noise_images(size);
    const auto alone = evaluate(model.program, weights, images);
    comm::run_ranks(1, 3, [&](comm::Hierarchy& ranks) {
      const auto shared = evaluate(model.program, weights, images, *ranks.world);
      EXPECT_DOUBLE_EQ(shared.accuracy, alone.accuracy);
      EXPECT_NEAR(shared.loss, alone.loss, 1e-6);
    });
  }
}

/// Means over whole batches of 128, in double.
TensorDict expected_statistics(const data::Dataset& images, const Weights& weights, int64_t batches, int64_t size) {
  TensorDict means;
  for (int64_t b = 0; b < batches; ++b) {
    TensorDict statistics;
    by_hand(normalised(images, b * size, (b + 1) * size), weights, &statistics);
    for (const auto& item : statistics) {
      const at::Tensor share = item.value().to(at::kDouble) / static_cast<double>(batches);
      if (b == 0) means.insert(item.key(), at::zeros_like(share));
      means[item.key()] += share;
    }
  }
  return means;
}

data::Dataset brighter(int node) {
  data::Dataset images = noise_images(300);
  images.images = images.images.div(4, "floor").add(60 * node).to(at::kByte);
  return images;
}

program::Model with_momentum(program::Model model, double momentum) {
  program::Graph graph = model.program.graph();
  for (auto& node : graph.nodes) {
    if (node.target == "aten::batch_norm") node.set("momentum", momentum);
  }
  return {program::Program(std::move(graph)), std::move(model.weights)};
}

void expect_statistics(int64_t images, int64_t batches, int64_t batch_size,
                       const program::Model& model = small_network()) {
  at::NoGradGuard no_grad;
  const Weights weights = used_weights(model), untouched = used_weights(model);
  const auto calibration = noise_images(images);
  const TensorDict expected = expected_statistics(calibration, weights, batches, batch_size);
  ASSERT_EQ(expected.size(), 4);
  for (const int ranks : {1, 3}) {
    comm::run_ranks(1, ranks, [&](comm::Hierarchy& hierarchy) {
      const auto estimated = with_estimated_statistics(model.program, weights, calibration, *hierarchy.world);
      for (const auto& item : expected) {
        const at::Tensor got = estimated.buffers[item.key()].to(at::kDouble);
        EXPECT_TRUE(at::allclose(got, item.value(), 1e-5, 1e-6)) << item.key() << " on " << ranks << " ranks";
      }
      EXPECT_EQ(estimated.buffers["bn1.num_batches_tracked"].item<int64_t>(), 17);
      EXPECT_TRUE(estimated.params["fc.weight"].is_same(weights.params["fc.weight"]));
    });
  }
  for (const auto& buffer : untouched.buffers) {
    EXPECT_TRUE(at::equal(buffer.value(), weights.buffers[buffer.key()])) << buffer.key();
  }
}

TEST(EstimatedStatistics, AreMeansOverBatchesOf128) {
  expect_statistics(300, 2, 128);  // 44 images do not fill a third batch
}

TEST(EstimatedStatistics, OfFewerImagesAreThoseOfOneBatch) {
  expect_statistics(50, 1, 50);
}

TEST(EstimatedStatistics, DoNotDependOnTheMomentum) {
  for (const double momentum : {0.0, 0.3, 1.0})
    expect_statistics(300, 2, 128, with_momentum(small_network(), momentum));
}

/// conv1 - bn1 - conv2 - bn1: two layers that share a norm.
program::Model network_of_a_shared_norm() {
  program::Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.batch_norm("bn1", builder.conv2d("conv1", x, {.out = 6, .kernel = 3}));
  x = builder.batch_norm("bn2", builder.conv2d("conv2", x, {.out = 6, .kernel = 3}));
  auto model = std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses}));
  program::Graph graph = model.program.graph();
  const program::Node* first = nullptr;
  for (auto& node : graph.nodes) {
    if (node.target != "aten::batch_norm") continue;
    for (auto& argument : node.arguments) {
      const bool shared = first != nullptr && argument.name != "input";
      if (shared) argument = *first->find(argument.name);
    }
    first = &node;
  }
  return {program::Program(std::move(graph)), std::move(model.weights)};
}

TEST(EstimatedStatistics, OfANormThatIsUsedTwiceAreMeansOfAllThatItSees) {
  at::NoGradGuard no_grad;
  const auto images = noise_images(64);
  for (const double momentum : {0.1, 0.5}) {
    const auto model = with_momentum(network_of_a_shared_norm(), momentum);
    const auto& p = model.weights.params;
    const std::vector<int64_t> positions{0, 2, 3};
    const at::Tensor first = at::conv2d(normalised(images, 0, 64), p["conv1.weight"]);
    const auto [variance, mean] = at::var_mean(first, positions, /*unbiased=*/false, /*keepdim=*/true);
    const at::Tensor second = at::conv2d((first - mean) / (variance + 1e-5).sqrt(), p["conv2.weight"]);
    const double earlier = momentum * (1 - momentum), both = earlier + momentum;
    const auto weighted = [&](const at::Tensor& a, const at::Tensor& b) { return (a * earlier + b * momentum) / both; };
    comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
      const auto estimated = with_estimated_statistics(model.program, model.weights, images, *ranks.world);
      EXPECT_TRUE(at::allclose(estimated.buffers["bn1.running_mean"],
                               weighted(first.mean(positions), second.mean(positions)), 1e-4, 1e-5));
      EXPECT_TRUE(at::allclose(estimated.buffers["bn1.running_var"],
                               weighted(first.var(positions, true), second.var(positions, true)), 1e-4, 1e-5));
    });
  }
}

/// torch.nn.InstanceNorm2d(track_running_stats=True): each image has its own, of which they are the mean.
TEST(EstimatedStatistics, OfInstanceNormAreMeansOverImages) {
  at::NoGradGuard no_grad;
  const auto model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/instance_norm_tracking.pt2");
  auto images = noise_images(64);
  images.images = images.images.slice(2, 0, 6).slice(3, 0, 6).contiguous(at::MemoryFormat::ChannelsLast);
  const auto& p = model.weights.params;
  const at::Tensor x = at::conv2d(normalised(images, 0, 64), p["a.weight"], p["a.bias"], 1, 1);
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    const auto estimated = with_estimated_statistics(model.program, model.weights, images, *ranks.world);
    EXPECT_TRUE(at::allclose(estimated.buffers["norm.running_mean"], x.mean({0, 2, 3}), 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(estimated.buffers["norm.running_var"],
                             x.var(at::IntArrayRef{2, 3}, /*unbiased=*/true).mean(0), 1e-4, 1e-5));
  });
}

TEST(EstimatedStatistics, SeeTheSameNoiseWheneverTheyAreAsked) {
  program::Builder builder(3);
  auto x = builder.conv2d("conv1", builder.input("x", {3, kSide, kSide}), {.out = 6, .kernel = 3});
  x = builder.batch_norm("bn1", builder.dropout(x, 0.5));
  const auto model = std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses}));
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
    const auto estimate = [&] {
      return with_estimated_statistics(model.program, model.weights, noise_images(300), *ranks.world).buffers;
    };
    const TensorDict first = estimate();
    at::rand({17});  // what training draws meanwhile
    const TensorDict second = estimate();
    for (const auto& buffer : first) EXPECT_TRUE(at::equal(buffer.value(), second[buffer.key()])) << buffer.key();
  });
}

TEST(EstimatedStatistics, AreTheSameBitsOnEveryRank) {
  const auto model = small_network();
  const auto calibration = noise_images(400);
  std::vector<Weights> of_rank(3);
  comm::run_ranks(3, 1, [&](comm::Hierarchy& ranks) {
    of_rank[ranks.layout.rank] = with_estimated_statistics(model.program, model.weights, calibration, *ranks.world);
  });
  for (const auto& buffer : of_rank[0].buffers) {
    EXPECT_TRUE(at::equal(buffer.value(), of_rank[1].buffers[buffer.key()])) << buffer.key();
    EXPECT_TRUE(at::equal(buffer.value(), of_rank[2].buffers[buffer.key()])) << buffer.key();
  }
}

/// Of 300 images: two batches, of which the first two nodes of two ranks would take all.
TEST(EstimatedStatistics, AreOfEveryNodeWhereNodesHaveImagesOfTheirOwn) {
  at::NoGradGuard no_grad;
  const auto model = small_network();
  for (const int nodes : {1, 2, 3}) {
    comm::run_ranks(nodes, 2, [&](comm::Hierarchy& ranks) {
      TensorDict expected;
      for (int node = 0; node < nodes; ++node) {
        for (const auto& item : expected_statistics(brighter(node), model.weights, 2, 128)) {
          const at::Tensor share = item.value() / nodes;
          if (node == 0) expected.insert(item.key(), at::zeros_like(share));
          expected[item.key()] += share;
        }
      }
      const auto estimated = with_estimated_statistics(model.program, model.weights, brighter(ranks.layout.node()),
                                                       *ranks.world, ranks.node.get());
      for (const auto& item : expected) {
        const at::Tensor got = estimated.buffers[item.key()].to(at::kDouble);
        EXPECT_TRUE(at::allclose(got, item.value(), 1e-5, 1e-6)) << item.key() << " on " << nodes << " nodes";
      }
    });
  }
}

TEST(EstimatedStatistics, OfANetworkWithoutBatchNormAreItsBuffers) {
  program::Builder builder(1);
  const auto x = builder.flatten(builder.input("x", {3, kSide, kSide}));
  const auto logits = builder.linear("fc", x, {.out = kClasses});
  const auto model = std::move(builder).finish(logits);
  comm::run_ranks(1, 2, [&](comm::Hierarchy& ranks) {
    EXPECT_TRUE(
        with_estimated_statistics(model.program, model.weights, noise_images(9), *ranks.world).buffers.is_empty());
  });
}

// As uint8, so that only Loader's normalisation lies between the two.
TEST(CalibrationImages, AreTheFirst1024ThatTrainingSeesInEpochZero) {
  auto images = noise_images(1500);
  images.augmentation = {.padding = 2, .flip = true};
  const auto chosen = calibration_images(images, 9);
  ASSERT_EQ(chosen.size(), 1024);
  data::Loader loader(images, {.batch_size = 512, .seed = 9});
  for (const int64_t step : {0, 1}) {
    const auto seen = loader.batch(0, step);
    const auto got = data::evaluation_batch(chosen, step * 512, (step + 1) * 512);
    EXPECT_TRUE(at::equal(got.images, seen.images)) << step;
    EXPECT_TRUE(at::equal(got.labels, seen.labels)) << step;
  }
  EXPECT_EQ(calibration_images(noise_images(30), 9).size(), 30);
  EXPECT_EQ(images.size(), 1500);
}

}  // namespace
}  // namespace prunex::train
