// Local steps on a real GPU: those that are replayed from a CUDA graph against those launched kernel by kernel, and how
// fast either is.
#include "prunex/train/steps/local_steps.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>

#include "prunex/channels/analysis.h"
#include "prunex/comm/connect.h"
#include "prunex/data/load.h"
#include "prunex/models/models.h"
#include "prunex/stopwatch.h"
#include "prunex/train/device.h"
#include "tests/texts.h"

namespace prunex::train {
namespace {

/// cuDNN may choose another algorithm; its sums are then in another order.
constexpr double kOfLoss = 1e-3;
const c10::Device kGpu(at::kCUDA, 0);

class GpuRank {
 public:
  GpuRank(const std::string& name, int64_t batch_size, Arithmetic arithmetic, GraphMaker make_graph)
      : data_(data::load_datasets({.dataset = "synthetic", .samples = 4 * batch_size})),
        loader_(data_.train, {.batch_size = batch_size, .seed = 1}),
        feed_(make_batch_feed(loader_, kGpu)),
        network_(on_device(channels_last(models::make_model(name, {})), kGpu),
                 channels::Analysis(models::make_model(name, {}).program)),
        steps_(network_, *feed_, arithmetic, std::move(make_graph)) {}

  double losses(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      feed_->load(number_ / loader_.steps_per_epoch(), number_ % loader_.steps_per_epoch());
      ++number_;
      losses_.add(steps_.step(no_terms_, {.learning_rate = 0.01}), number_);
    }
    return losses_.take() / static_cast<double>(steps);
  }
  double samples_per_second(int64_t steps) {
    losses(3);
    const double begin = Stopwatch::now();
    losses(steps);
    return static_cast<double>(steps * loader_.batch_size()) / (Stopwatch::now() - begin);
  }
  int64_t captures() const { return steps_.captures(); }

 private:
  static program::Model channels_last(program::Model model) {
    for (auto& theta : model.weights.params) {
      at::Tensor weight = theta.value().detach();
      if (weight.dim() == 4) weight = weight.contiguous(at::MemoryFormat::ChannelsLast);
      theta.value() = weight.set_requires_grad(true);
    }
    return model;
  }

  data::Datasets data_;
  data::Loader loader_;
  std::unique_ptr<BatchFeed> feed_;
  TrainedNetwork network_;
  const strategies::LocalTerms no_terms_;
  LocalSteps steps_;
  LossSum losses_{RunLength{.phases = {{.learning_rate = 0.01}}}};
  int64_t number_ = 0;
};

class StepsOnGpu : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    const auto problem = tests::message(comm::check_gpu);
    if (problem != "no exception") GTEST_SKIP() << "no GPU here: " << problem;
    compute_reproducibly();
  }
};

TEST_P(StepsOnGpu, HaveThePlainOnesLossesWhenTheyAreReplayed) {
  GpuRank plain("resnet20", 32, GetParam(), nullptr), recorded("resnet20", 32, GetParam(), make_device_graph);
  for (int64_t part = 0; part < 4; ++part) {
    const double loss = plain.losses(3);
    EXPECT_NEAR(recorded.losses(3), loss, kOfLoss * loss) << "part " << part;
  }
  EXPECT_EQ(plain.captures(), 0);
  EXPECT_EQ(recorded.captures(), 1);
}

TEST_P(StepsOnGpu, SayHowFastTheyAre) {
  for (const char* name : {"resnet20", "resnet18"}) {
    GpuRank plain(name, 128, GetParam(), nullptr), recorded(name, 128, GetParam(), make_device_graph);
    const double before = plain.samples_per_second(50), after = recorded.samples_per_second(50);
    EXPECT_GT(after, 0);
    std::cout << fmt::format("{} {}, batches of 128: {:.0f} samples/s kernel by kernel, {:.0f} as one CUDA graph\n",
                             name, name_of(GetParam()), before, after);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StepsOnGpu, testing::Values(Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kBf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace prunex::train
