// Local steps on the device: the CPU's losses, weights and momentum bit for bit, and nothing that the host waits for.
#include "prunex/train/local_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "prunex/channels/analysis.h"
#include "prunex/data/load.h"
#include "prunex/models/models.h"
#include "prunex/prune/regularizer.h"
#include "prunex/train/device.h"
#include "prunex/train/optimizer.h"
#include "tests/device/pretend_device.h"
#include "tests/device/same_bits.h"

namespace prunex::train {
namespace {

using tests::expect_same_ranks;
using tests::host_traffic;
using tests::HostTraffic;
using tests::pretend_device;

constexpr OptimizerOptions kSgd{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 5e-4};

/// A rank that trains resnet8 on images of noise.
class Rank {
 public:
  explicit Rank(const c10::Device& device, Arithmetic arithmetic = Arithmetic::kFp32)
      : device_(device),
        arithmetic_(arithmetic),
        data_(data::load_datasets({.dataset = "synthetic", .samples = 64})),
        loader_(data_.train, {.batch_size = 8, .rank = 0, .ranks = 1, .seed = 1}),
        model_(models::make_model("resnet8", {})) {
    for (auto& theta : model_.weights.params) {
      if (theta.value().dim() != 4) continue;
      theta.value() = theta.value().detach().contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    }
    model_ = on_device(std::move(model_), device);
    replica_ = {model_.weights, fresh_state(model_.weights.params)};
  }

  Replica& replica() { return replica_; }
  const program::Program& program() const { return model_.program; }

  void step(int64_t number, const strategies::LocalTerms& terms = strategies::LocalTerms(),
            prune::Regularizer* penalty = nullptr) {
    const auto batch = on_device(loader_.batch(0, number % loader_.steps_per_epoch()), device_);
    losses_.add(compute_gradients(model_.program, replica_, batch, arithmetic_), number);
    if (penalty != nullptr) penalty->add_to_gradients(replica_.weights.params, 0.5);
    optimizer_step(replica_, terms, kSgd);
  }

  double losses() { return losses_.take(); }

 private:
  c10::Device device_;
  Arithmetic arithmetic_;
  data::Datasets data_;
  data::Loader loader_;
  program::Model model_;
  Replica replica_;
  LossSum losses_{RunLength{.phases = {{.learning_rate = 0.05}}}};
};

/// An anchor on every second parameter, a mask on every third.
strategies::LocalTerms some_terms(const Weights& weights) {
  strategies::LocalTerms terms;
  int64_t number = 0;
  for (const auto& item : weights.params) {
    const at::Tensor theta = item.value().detach();
    if (number % 2 == 0) {
      terms.anchor.insert(item.key(), theta * 0.75);
      terms.rho1.push_back(0.1 + 0.01 * static_cast<double>(number));
    }
    if (number % 3 == 0) terms.masks.insert(item.key(), theta.gt(0).to(theta.scalar_type()));
    ++number;
  }
  return terms;
}

class LocalStepOnDevice : public testing::Test {
 protected:
  LocalStepOnDevice() { at::set_num_threads(1); }
};

TEST_F(LocalStepOnDevice, HasTheCpusLossWeightsAndMomentum) {
  Rank here(at::kCPU), there(pretend_device());
  for (int64_t step = 1; step <= 3; ++step) {
    here.step(step);
    there.step(step);
  }
  expect_same_ranks(here, there);
}

TEST_F(LocalStepOnDevice, HasThemInBf16) {
  Rank here(at::kCPU, Arithmetic::kBf16), there(pretend_device(), Arithmetic::kBf16);
  for (int64_t step = 1; step <= 2; ++step) {
    here.step(step);
    there.step(step);
  }
  expect_same_ranks(here, there);
}

TEST_F(LocalStepOnDevice, HasThemWithProximalTermsAndMasks) {
  Rank here(at::kCPU), there(pretend_device());
  const auto terms_here = some_terms(here.replica().weights), terms_there = some_terms(there.replica().weights);
  for (int64_t step = 1; step <= 3; ++step) {
    here.step(step, terms_here);
    there.step(step, terms_there);
  }
  expect_same_ranks(here, there);
}

TEST_F(LocalStepOnDevice, HasThemUnderEveryPenaltyOfSparseTraining) {
  for (const auto& name : prune::penalty_names()) {
    Rank here(at::kCPU), there(pretend_device());
    const channels::Analysis analysis(here.program());
    const prune::RegularizerOptions options{.penalty = prune::penalty_named(name), .strength = 1e-3, .growth = 0.1};
    for (Rank* rank : {&here, &there}) {
      prune::Regularizer penalty(options, analysis);
      for (int64_t step = 1; step <= 3; ++step) {
        penalty.refresh(rank->replica().weights, 0.5);
        rank->step(step, strategies::LocalTerms(), &penalty);
      }
    }
    SCOPED_TRACE(name);
    expect_same_ranks(here, there);
  }
}

TEST_F(LocalStepOnDevice, MakesTheHostWaitForNothingAndTakesNoNewMemory) {
  Rank rank(pretend_device());
  const auto terms = some_terms(rank.replica().weights);
  const channels::Analysis analysis(rank.program());
  prune::Regularizer penalty({.penalty = prune::Penalty::kGroupNorm, .strength = 1e-3}, analysis);
  penalty.refresh(rank.replica().weights, 1);
  for (int64_t step = 1; step <= 2; ++step) rank.step(step, terms, &penalty);
  const HostTraffic before = host_traffic();
  for (int64_t step = 3; step <= 5; ++step) rank.step(step, terms, &penalty);
  const HostTraffic steps = host_traffic() - before;
  EXPECT_EQ(steps.reads, 0);
  EXPECT_EQ(steps.uploads, 0);
  EXPECT_GT(steps.kernels, 3 * 100);
  EXPECT_EQ(steps.grown, 0);
  rank.losses();
  EXPECT_EQ((host_traffic() - before).reads, 1) << "the sum of the losses";
}

/// As PyTorch's switches stand while backward runs, which a GPU's kernels go by.
TEST_F(LocalStepOnDevice, LetsGpusTakeTf32WhereItIsWanted) {
  compute_reproducibly();
  for (const auto arithmetic : {Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kBf16}) {
    Rank rank(at::kCPU, arithmetic);
    const auto switches = [] {
      return std::pair(at::globalContext().allowTF32CuDNN(), at::globalContext().allowTF32CuBLAS());
    };
    std::vector<std::pair<bool, bool>> seen;
    rank.replica().weights.params.front().value().register_hook([&](const at::Tensor&) { seen.push_back(switches()); });
    rank.step(1);
    const bool tf32 = arithmetic == Arithmetic::kTf32;
    EXPECT_THAT(seen, testing::ElementsAre(std::pair(tf32, tf32))) << name_of(arithmetic);
    EXPECT_EQ(switches(), std::pair(false, false)) << "an evaluation is in fp32";
  }
}

/// Ranks may be threads of one process.
TEST_F(LocalStepOnDevice, LeavesTf32OnForARankThatIsNotDone) {
  compute_reproducibly();
  Rank rank(at::kCPU, Arithmetic::kTf32), other(at::kCPU, Arithmetic::kTf32);
  bool left_on = false;
  rank.replica().weights.params.front().value().register_hook([&](const at::Tensor&) {
    std::thread([&] { other.step(1); }).join();
    left_on = at::globalContext().allowTF32CuDNN() && at::globalContext().allowTF32CuBLAS();
  });
  rank.step(1);
  EXPECT_TRUE(left_on);
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
}

TEST_F(LocalStepOnDevice, SaysWhereALossWasNoNumberWhenTheSumIsTaken) {
  const Phase first{.steps = 5}, second{.begin = 5, .steps = 5, .learning_rate = 2, .rate_option = "`finetune_lr`"};
  const RunLength length{.steps = 10, .phases = {first, second}};
  LossSum losses(length);
  const auto bad = at::full({}, std::numeric_limits<double>::infinity());
  EXPECT_THAT([&] { losses.add(bad, 3); }, testing::ThrowsMessage<std::runtime_error>(
                                               testing::HasSubstr("inf at step 3: try a lower `lr` (got 0.1)")));
  LossSum there(length);
  there.add(at::ones({}).to(pretend_device()), 7);
  there.add(bad.to(pretend_device()), 8);
  there.add(at::ones({}).to(pretend_device()), 9);
  EXPECT_THAT([&] { there.take(); },
              testing::ThrowsMessage<std::runtime_error>(
                  testing::HasSubstr("the training loss is inf in steps 7 to 9: try a lower `finetune_lr` (got 2)")));
}

}  // namespace
}  // namespace prunex::train
