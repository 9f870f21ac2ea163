// Local steps that are recorded and replayed: the same kernels, the plain step's bits, one graph until something of the
// network changes.
#include "prunex/train/steps/local_steps.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "prunex/channels/analysis.h"
#include "prunex/program/builder.h"
#include "prunex/train/device.h"
#include "tests/device/pretend_device.h"
#include "tests/device/pretend_graph.h"
#include "tests/device/same_bits.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using tests::expect_same_ranks;
using tests::host_traffic;
using tests::HostTraffic;
using tests::make_pretend_graph;
using tests::pretend_device;

program::Model trainable(program::Model model) {
  for (auto& theta : model.weights.params) theta.value().set_requires_grad(true);
  return model;
}

/// conv - relu - dropout - mean - fc.
program::Model network_with_dropout() {
  program::Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.relu(builder.conv2d("conv1", x, {.out = 6, .kernel = 3, .padding = 1}));
  x = builder.mean(builder.dropout(x, 0.5), {2, 3});
  return std::move(builder).finish(builder.linear("fc", x, {.out = kClasses}));
}

/// small_network() and a constant.
program::Model network_with_constant() {
  program::Model model = small_network();
  program::Graph graph = model.program.graph();
  const auto constant = static_cast<program::ValueId>(graph.values.size()), sum = constant + 1;
  graph.values.push_back(
      {.name = "shift", .role = program::Role::kConstant, .weight = "shift", .shape = {{.factor = kClasses}}});
  graph.values.push_back({.name = "shifted", .shape = graph.values[graph.outputs[0]].shape});
  graph.constants.emplace("shift", at::arange(kClasses, at::kFloat));
  graph.nodes.push_back(
      {.target = "aten::add.Tensor",
       .arguments = {program::Builder::tensor("self", graph.outputs[0]), program::Builder::tensor("other", constant)},
       .outputs = {sum}});
  graph.outputs = {sum};
  return {program::Program(graph), model.weights};
}

data::Loader loader_of(int64_t images) {
  data::Dataset set = noise_images(images);
  set.augmentation = {.padding = 2, .flip = true};
  return {set, {.batch_size = 8, .seed = 3}};
}

class SteppingRank {
 public:
  SteppingRank(const c10::Device& device, GraphMaker make_graph, const program::Model& model = small_network(),
               LossOptions loss = {})
      : device_(device),
        loader_(loader_of(80)),
        feed_(make_batch_feed(loader_, device)),
        network_(on_device(trainable(copy_of(model)), device), channels::Analysis(model.program)),
        steps_(network_, *feed_, Arithmetic::kFp32, std::move(make_graph), std::move(loss)) {}

  Replica& replica() { return network_.replica(); }
  LocalSteps& steps() { return steps_; }
  double losses() { return losses_.take(); }

  /// An anchor on every second parameter, another one with another rho1 after every exchange.
  void exchange(int64_t number) {
    at::NoGradGuard no_grad;
    terms_.rho1.clear();
    for (size_t p = 0; p < replica().weights.params.size(); p += 2) {
      const auto& theta = replica().weights.params[p];
      if (at::Tensor* anchor = terms_.anchor.find(theta.key())) {
        anchor->copy_(theta.value() * 0.75);
      } else {
        terms_.anchor.insert(theta.key(), theta.value().detach() * 0.75);
      }
      terms_.rho1.push_back(0.1 + 0.05 * static_cast<double>(number) + 0.01 * static_cast<double>(p));
    }
  }

  /// The first unit of every third parameter is dead.
  void freeze() {
    at::NoGradGuard no_grad;
    for (size_t p = 0; p < replica().weights.params.size(); p += 3) {
      const auto& theta = replica().weights.params[p];
      at::Tensor mask = at::ones_like(theta.value().detach());
      mask.select(0, 0).zero_();
      terms_.masks.insert(theta.key(), mask);
    }
  }

  void cut() {
    const auto& groups = network_.analysis().removable();
    auto masks = sparsity::full_masks(groups);
    for (auto& mask : masks) mask.value().select(0, 0).zero_();
    const auto cut = sparsity::make_cut(groups, masks, sparsity::shapes_of(replica().weights));
    network_.cut(cut);
    sparsity::apply_cut(terms_.anchor, cut);
    sparsity::apply_cut(terms_.masks, cut);
  }

  void step(int64_t number, double weight_decay = 5e-4) {
    load(number);
    losses_.add(steps_.step(terms_, sgd(number, weight_decay)), number);
  }
  /// With something of ours between gradients and update.
  void step_in_parts(int64_t number) {
    load(number);
    losses_.add(steps_.gradients(), number);
    for (auto& theta : replica().weights.params) theta.value().mutable_grad().mul_(0.5);
    optimizer_step(replica(), terms_, sgd(number, 0));
  }

 private:
  static program::Model copy_of(const program::Model& model) {
    program::Model copy = model;
    for (TensorDict* tensors : {&copy.weights.params, &copy.weights.buffers}) {
      for (auto& item : *tensors) item.value() = item.value().detach().clone();
    }
    return copy;
  }
  static OptimizerOptions sgd(int64_t step, double weight_decay) {
    return {.learning_rate = 0.1 / static_cast<double>(step), .momentum = 0.9, .weight_decay = weight_decay};
  }
  void load(int64_t step) {
    feed_->load(step / loader_.steps_per_epoch(), step % loader_.steps_per_epoch());
    seed_dropout(device_, 7, 0, step);
  }

  const c10::Device device_;
  const data::Loader loader_;
  const std::unique_ptr<BatchFeed> feed_;
  TrainedNetwork network_;
  strategies::LocalTerms terms_;
  LocalSteps steps_;
  LossSum losses_{RunLength{.phases = {{.learning_rate = 0.1}}}};
};

class RecordedSteps : public testing::Test {
 protected:
  RecordedSteps() { at::set_num_threads(1); }

  SteppingRank here_{at::kCPU, nullptr}, there_{pretend_device(), make_pretend_graph};

  template <class Body>
  void both(const Body& body) {
    body(here_);
    body(there_);
  }
};

TEST_F(RecordedSteps, HaveThePlainOnesNumbersAtEveryLearningRate) {
  for (int64_t step = 1; step <= 6; ++step) both([&](SteppingRank& rank) { rank.step(step); });
  expect_same_ranks(here_, there_);
  EXPECT_EQ(there_.steps().captures(), 1);
  EXPECT_EQ(here_.steps().captures(), 0);
}

TEST_F(RecordedSteps, ReadAnchorsAndTheirRho1WhereTheyLie) {
  for (int64_t step = 1; step <= 8; ++step) {
    if (step % 2 == 1) both([&](SteppingRank& rank) { rank.exchange(step); });
    both([&](SteppingRank& rank) { rank.step(step); });
  }
  expect_same_ranks(here_, there_);
  EXPECT_EQ(there_.steps().captures(), 1);
}

TEST_F(RecordedSteps, AreRecordedAnewAtTheFreezeAtACutAndForAnotherPhase) {
  int64_t step = 0;
  const auto four_steps = [&](double weight_decay) {
    for (int i = 0; i < 4; ++i) {
      ++step;
      both([&](SteppingRank& rank) { rank.step(step, weight_decay); });
    }
    expect_same_ranks(here_, there_);
  };
  both([](SteppingRank& rank) { rank.exchange(1); });
  four_steps(5e-4);
  EXPECT_EQ(there_.steps().captures(), 1);
  both([](SteppingRank& rank) { rank.freeze(); });
  four_steps(5e-4);
  EXPECT_EQ(there_.steps().captures(), 2);
  both([](SteppingRank& rank) { rank.cut(); });
  four_steps(5e-4);
  EXPECT_EQ(there_.steps().captures(), 3);
  four_steps(0);
  EXPECT_EQ(there_.steps().captures(), 4);
}

TEST_F(RecordedSteps, LeaveTheirGradientsToWhoChangesThem) {
  for (int64_t step = 1; step <= 6; ++step) both([&](SteppingRank& rank) { rank.step_in_parts(step); });
  expect_same_ranks(here_, there_);
  EXPECT_EQ(there_.steps().captures(), 1);
}

TEST_F(RecordedSteps, AreTheKernelsOfEveryStepBefore) {
  there_.exchange(1);
  there_.freeze();
  const auto first = tests::kernels_of([&] { there_.step(1); }), second = tests::kernels_of([&] { there_.step(2); });
  const auto third = tests::kernels_of([&] { there_.step(3); });
  const auto recorded = tests::recorded_kernels();
  ASSERT_GT(recorded.size(), 40U);
  // around the graph: the draws, the learning rate, the sum of losses
  EXPECT_EQ(third.size() + recorded.size(), second.size());
  EXPECT_LT(third.size(), 6U);
  EXPECT_NE(std::search(second.begin(), second.end(), recorded.begin(), recorded.end()), second.end());
  EXPECT_NE(std::search(first.begin(), first.end(), recorded.begin(), recorded.end()), first.end());
}

TEST_F(RecordedSteps, MakeTheHostWaitForNothingAndTakeNoNewMemory) {
  there_.exchange(1);
  for (int64_t step = 1; step <= 4; ++step) there_.step(step);
  const HostTraffic before = host_traffic();
  for (int64_t step = 5; step <= 9; ++step) there_.step(step);
  const HostTraffic steps = host_traffic() - before;
  EXPECT_EQ(steps.reads, 0);
  EXPECT_EQ(steps.uploads, 0);
  EXPECT_EQ(steps.grown, 0);
  EXPECT_LT(steps.kernels, 5 * 6);
}

TEST_F(RecordedSteps, HoldConstantsWhichAreThereAfterTheFirstStep) {
  SteppingRank here(at::kCPU, nullptr, network_with_constant());
  SteppingRank there(pretend_device(), make_pretend_graph, network_with_constant());
  for (int64_t step = 1; step <= 4; ++step) {
    const HostTraffic before = host_traffic();
    for (SteppingRank* rank : {&here, &there}) rank->step(step);
    EXPECT_EQ((host_traffic() - before).uploads, step == 1 ? 1 : 0);
  }
  EXPECT_EQ(there.steps().captures(), 1);
  expect_same_ranks(here, there);
}

LossOptions taught_on(const c10::Device& device) {
  return {.teacher = std::make_shared<Teacher>(Teacher{on_device(small_network(), device), 0.5, 4})};
}

TEST_F(RecordedSteps, HaveTheTeacherInThem) {
  SteppingRank here(at::kCPU, nullptr, small_network(), taught_on(at::kCPU));
  SteppingRank there(pretend_device(), make_pretend_graph, small_network(), taught_on(pretend_device()));
  for (int64_t step = 1; step <= 6; ++step) {
    const HostTraffic before = host_traffic();
    for (SteppingRank* rank : {&here, &there}) rank->step(step);
    EXPECT_EQ((host_traffic() - before).reads, 0);
  }
  EXPECT_EQ(there.steps().captures(), 1);
  expect_same_ranks(here, there);
}

TEST_F(RecordedSteps, DrawAnewInEveryStep) {
  SteppingRank plain(pretend_device(), nullptr, network_with_dropout());
  SteppingRank recorded(pretend_device(), make_pretend_graph, network_with_dropout());
  for (int64_t step = 1; step <= 6; ++step) {
    for (SteppingRank* rank : {&plain, &recorded}) rank->step(step);
  }
  EXPECT_EQ(recorded.steps().captures(), 1);
  expect_same_ranks(plain, recorded);
}

TEST_F(RecordedSteps, AreKernelByKernelOnADeviceWithoutGraphs) {
  SteppingRank plain(pretend_device(), make_device_graph);
  EXPECT_FALSE(plain.steps().has_graphs());
  for (int64_t step = 1; step <= 4; ++step) {
    plain.step(step);
    here_.step(step);
  }
  EXPECT_EQ(plain.steps().captures(), 0);
  expect_same_ranks(here_, plain);
}

/// Labels that the host has looked at.
class CuriousFeed final : public BatchFeed {
 public:
  explicit CuriousFeed(std::unique_ptr<BatchFeed> feed) : BatchFeed(feed->loader()), feed_(std::move(feed)) {}

  void load(int64_t epoch, int64_t step) override { feed_->load(epoch, step); }
  data::Batch batch() const override {
    const auto batch = feed_->batch();
    EXPECT_GE(batch.labels.min().item<int64_t>(), 0);
    return batch;
  }
  std::vector<at::Tensor> inputs() const override { return feed_->inputs(); }

 private:
  std::unique_ptr<BatchFeed> feed_;
};

TEST_F(RecordedSteps, RefuseWhatWaitsForAResult) {
  TrainedNetwork network(on_device(trainable(small_network()), pretend_device()),
                         channels::Analysis(small_network().program));
  CuriousFeed feed(make_batch_feed(loader_of(80), pretend_device()));
  LocalSteps steps(network, feed, Arithmetic::kFp32, make_pretend_graph);
  const strategies::LocalTerms none;
  feed.load(0, 0);
  for (int step = 1; step <= 2; ++step) steps.step(none, {});
  EXPECT_THAT(tests::message([&] { steps.step(none, {}); }),
              HasSubstr("the network's step cannot be one CUDA graph: item(): operation not permitted when stream is "
                        "capturing; wanted `no_cuda_graphs`, or other operations"));
}

}  // namespace
}  // namespace prunex::train
