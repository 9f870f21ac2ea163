// What the host waits for in a strategy's steps and exchanges, where a transport carries the device's own tensors.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/channels/analysis.h"
#include "prunex/comm/connect.h"
#include "prunex/train/device.h"
#include "prunex/train/local_step.h"
#include "prunex/train/optimizer.h"
#include "prunex/train/optimizer_choice.h"
#include "prunex/train/strategy_choice.h"
#include "tests/device/direct_groups.h"
#include "tests/device/pretend_device.h"
#include "tests/device/small_runs.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using tests::host_traffic;
using tests::HostTraffic;

/// Of all ranks together.
struct Waits {
  int64_t all = 0;                      // reads and uploads from the first step to the last
  int64_t steps = 0;                    // of those, in local steps, and where an exchange begins beside some
  std::vector<int64_t> reads, uploads;  // of every exchange
};

Replica replica_on(const c10::Device& device, program::Model model) {
  for (auto& theta : model.weights.params) {
    theta.value() = theta.value().detach().to(device).set_requires_grad(true);
  }
  for (auto& buffer : model.weights.buffers) buffer.value() = buffer.value().to(device);
  return {model.weights, fresh_state(model.weights.params)};
}

class TrainingRank {
 public:
  TrainingRank(const TrainOptions& options, comm::Hierarchy& ranks)
      : options_(options),
        ranks_(ranks),
        model_(small_network()),
        length_(run_length(options, 64)),
        replica_(replica_on(ranks.device, model_)),
        batch_(on_device(data::evaluation_batch(noise_images(8), 0, 8), ranks.device)) {
    const channels::Analysis analysis(model_.program);
    const RunPlan plan{.length = length_,
                       .learning_rate = learning_rates(length_),
                       .masked = {.groups = groups_to_prune(analysis, options)}};
    strategy_ = make_strategy(options, plan, replica_, ranks);
  }

  Waits run() {
    Waits waits;
    const HostTraffic all = during([&] { run_steps(waits); });
    waits.all = all.reads + all.uploads;
    return waits;
  }

 private:
  void run_steps(Waits& waits) {
    for (int64_t step = 1; step <= length_.steps; ++step) {
      const HostTraffic local = during([&] { train(); });
      waits.steps += local.reads + local.uploads;
      strategies::Exchange exchange;
      const HostTraffic traffic = during([&] { exchange = strategy_->after_update(replica_, step); });
      if (!exchange.exchanged) {
        waits.steps += traffic.reads + traffic.uploads;
        continue;
      }
      waits.reads.push_back(traffic.reads);
      waits.uploads.push_back(traffic.uploads);
    }
  }

  void train() {
    compute_gradients(model_.program, replica_, batch_, Arithmetic::kFp32);
    strategy_->before_update(replica_);
    optimizer_step(replica_, strategy_->local_terms(),
                   {.learning_rate = 0.05, .momentum = optimizer_of(options_).momentum});
  }

  /// What all ranks do between two barriers.
  template <class Body>
  HostTraffic during(const Body& body) {
    ranks_.world->barrier();
    const HostTraffic before = host_traffic();
    ranks_.world->barrier();
    body();
    ranks_.world->barrier();
    const HostTraffic traffic = host_traffic() - before;
    ranks_.world->barrier();
    return traffic;
  }

  const TrainOptions& options_;
  comm::Hierarchy& ranks_;
  program::Model model_;
  RunLength length_;
  Replica replica_;
  data::Batch batch_;
  std::unique_ptr<strategies::Strategy> strategy_;
};

constexpr int64_t kRanks = 2;

/// On nodes of one rank: 6 exchanges of 2 steps.
Waits waits_of(const std::function<void(TrainOptions&)>& set) {
  TrainOptions options;
  options.nodes = kRanks;
  options.exchanges = 6;
  options.local_steps = 2;
  options.batch_size = 4;
  options.round_to = 1;
  set(options);
  Waits waits;
  comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) {
    tests::serve_pretend_device(ranks);
    const Waits of_all = TrainingRank(options, ranks).run();
    if (ranks.layout.rank == 0) waits = of_all;
  });
  return waits;
}

Waits waits_of(const std::string& strategy, strategies::Payload payload) {
  return waits_of([&](TrainOptions& options) {
    options.strategy = strategy;
    options.exchange.payload = payload;
  });
}

/// While masks are open: the scores, and the norms of residuals. The freeze needs scores alone; after it nothing.
TEST(ExchangeOnDevice, OfHsadmmReadsScoresAndNormsUntilTheFreeze) {
  for (const auto payload : {strategies::Payload::kFp32, strategies::Payload::kInt2}) {
    const Waits waits = waits_of("hsadmm", payload);
    EXPECT_EQ(waits.steps, 0);
    EXPECT_THAT(waits.reads, ElementsAre(2 * kRanks, 2 * kRanks, 2 * kRanks, kRanks, 0, 0));
  }
}

TEST(ExchangeOnDevice, OfHsadmmThatGoesOnWithAdmmReadsNormsToTheEnd) {
  const Waits waits = waits_of([](TrainOptions& options) { options.after_freeze = strategies::AfterFreeze::kAdmm; });
  EXPECT_EQ(waits.steps, 0);
  EXPECT_THAT(waits.reads, ElementsAre(2 * kRanks, 2 * kRanks, 2 * kRanks, 2 * kRanks, kRanks, kRanks));
}

TEST(ExchangeOnDevice, OfOtherWeightsReadsNothing) {
  for (const auto& [strategy, payload] : {std::pair{"local_sgd", strategies::Payload::kFp32},
                                          {"diloco", strategies::Payload::kInt2},
                                          {"scaffold", strategies::Payload::kFp16}}) {
    SCOPED_TRACE(strategy);
    const Waits waits = waits_of(strategy, payload);
    EXPECT_EQ(waits.steps, 0);
    EXPECT_THAT(waits.reads, Each(0));
    EXPECT_THAT(waits.uploads, Each(0));
  }
}

TEST(ExchangeOnDevice, BesideStepsReadsNothing) {
  const Waits waits = waits_of([](TrainOptions& options) {
    options.strategy = "diloco";
    options.exchange.payload = strategies::Payload::kInt2;
    options.overlap = 1;
  });
  EXPECT_EQ(waits.all, 0);
  EXPECT_EQ(waits.reads.size(), 6U);
}

TEST(ExchangeOnDevice, OfNodesOfTwoRanksReadsNothing) {
  for (const auto form : {strategies::ExchangeForm::kSharded, strategies::ExchangeForm::kLeader}) {
    const Waits waits = waits_of([&](TrainOptions& options) {
      options.strategy = "local_sgd";
      options.ranks_per_node = {2};
      options.exchange.form = form;
    });
    EXPECT_EQ(waits.steps, 0);
    EXPECT_THAT(waits.reads, AllOf(SizeIs(6), Each(0)));
    EXPECT_THAT(waits.uploads, Each(0));
  }
}

TEST(ExchangeOnDevice, OfGradientsReadsNothing) {
  for (const auto* strategy : {"ddp", "top_k"}) {
    const Waits waits = waits_of(strategy, facts_of(strategy).narrowest);
    EXPECT_EQ(waits.steps, 0) << strategy;
    EXPECT_THAT(waits.reads, Each(0)) << strategy;
  }
  const Waits clipped = waits_of([](TrainOptions& options) {
    options.strategy = "top_k";
    options.top_k.dgc = true;
    options.top_k.dgc_options.clip = 0.5;
  });
  EXPECT_EQ(clipped.steps, 0);
}

/// The columns that a CPU makes orthogonal, all in one copy there and one back.
TEST(ExchangeOnDevice, OfPowerSgdReadsItsFactorsOnceAStep) {
  const Waits waits = waits_of("powersgd", strategies::Payload::kFp32);
  EXPECT_EQ(waits.steps, 12 * kRanks * 2);
  EXPECT_THAT(waits.reads, Each(0));
}

}  // namespace
}  // namespace prunex::train
