// Our ddp, local SGD and PowerSGD next to PyTorch's DistributedDataParallel, PeriodicModelAverager and powerSGD_hook:
// two ranks, the same weights and batches, in double precision.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "prunex/comm/connect.h"
#include "prunex/io/safetensors.h"
#include "prunex/models/models.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/train/local_step.h"
#include "prunex/train/optimizer.h"
#include "tests/larger.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex {
namespace {

using nlohmann::json;
using strategies::Strategy;

constexpr int64_t kRanks = 2, kSteps = 20, kBatch = 8, kSide = 32;
constexpr int64_t kPeriod = 5, kStart = 2, kFactors = 2;  // as in train_distributed.py
constexpr strategies::Reporting kReporting{.steps = kSteps, .total_steps = kSteps};
constexpr train::OptimizerOptions kSgd{.learning_rate = 0.0005, .momentum = 0.9, .weight_decay = 5e-4};

using Make = std::function<std::unique_ptr<Strategy>(Replica&, comm::Hierarchy&)>;

struct Losses {
  std::vector<std::vector<double>> losses{kRanks};  // of every rank and step
  std::vector<int64_t> sent_after_start{0, 0};
};

program::Model network() {
  auto model = models::make_model("resnet20", {.height = kSide, .width = kSide});
  for (TensorDict* tensors : {&model.weights.params, &model.weights.buffers}) {
    for (auto& tensor : *tensors) {
      if (tensor.value().is_floating_point()) tensor.value() = tensor.value().detach().to(at::kDouble);
    }
  }
  return model;
}

TensorDict batches() {
  auto generator = at::detail::createCPUGenerator(11);
  TensorDict tensors;
  tensors.insert("images", at::randn({kRanks, kSteps, kBatch, 3, kSide, kSide}, generator, at::kDouble));
  tensors.insert("labels", at::randint(0, 10, {kRanks, kSteps, kBatch}, generator, at::kLong));
  return tensors;
}

Losses run_ours(const Make& make) {
  Losses run;
  const TensorDict data = batches();
  comm::run_ranks(kRanks, 1, [&](comm::Hierarchy& h) {
    const int rank = h.layout.rank;
    program::Model model = network();
    Replica replica;
    for (const auto& theta : model.weights.params) {
      replica.weights.params.insert(theta.key(), theta.value().detach().clone().set_requires_grad(true));
    }
    replica.weights.buffers = model.weights.buffers;
    replica.optimizer = train::fresh_state(replica.weights.params);
    const auto strategy = make(replica, h);
    for (int64_t step = 0; step < kSteps; ++step) {
      if (step == kStart) run.sent_after_start[rank] = comm::moved_by_exchanges(h).sent;
      const data::Batch batch{data["images"][rank][step].contiguous(), data["labels"][rank][step].contiguous()};
      run.losses[rank].push_back(
          train::compute_gradients(model.program, replica, batch, train::Arithmetic::kFp32).item<double>());
      strategy->before_update(replica);
      train::optimizer_step(replica, strategy->local_terms(), kSgd);
      strategy->after_update(replica, step + 1);
    }
    run.sent_after_start[rank] = comm::moved_by_exchanges(h).sent - run.sent_after_start[rank];
  });
  return run;
}

double worst_gap(const Losses& ours, const json& theirs, const char* method) {
  double worst = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t step = 0; step < kSteps; ++step) {
      const double loss = theirs[rank][method]["losses"][step];
      worst = tests::larger(worst, std::abs(ours.losses[rank][step] - loss));
    }
  }
  return worst;
}

double mean_of_last_steps(const std::vector<double>& losses) {
  double sum = 0;
  for (size_t step = kSteps / 2; step < kSteps; ++step) sum += losses[step] / (kSteps / 2);
  return sum;
}

TEST(PyTorchDistributed, HasTheLossesOfOurs) {
  const tests::Scratch scratch;
  TensorDict inputs = batches();
  const auto model = network();
  for (const TensorDict* tensors : {&model.weights.params, &model.weights.buffers}) {
    for (const auto& tensor : *tensors) inputs.insert(tensor.key(), tensor.value().detach().contiguous());
  }
  io::write_safetensors(scratch / "inputs.safetensors", inputs);
  PRUNEX_RUN_PYTHON("tests/pytorch/train_distributed.py", scratch / "inputs.safetensors", scratch / "result.json");
  std::ifstream file(scratch / "result.json");
  const json theirs = json::parse(file);

  const Losses ddp = run_ours(
      [](Replica& replica, comm::Hierarchy& h) { return strategies::make_ddp(replica, h, {.reporting = kReporting}); });
  EXPECT_LT(worst_gap(ddp, theirs, "ddp"), 1e-9);

  strategies::HsadmmOptions local;
  local.consensus.penalty.kappa = 0;
  local.after_freeze = strategies::AfterFreeze::kAverage;
  local.local.steps = kPeriod;
  local.local.total_steps = kSteps;
  const Losses local_sgd =
      run_ours([&](Replica& replica, comm::Hierarchy& h) { return strategies::make_hsadmm(replica, h, local); });
  EXPECT_LT(worst_gap(local_sgd, theirs, "local_sgd"), 1e-9);

  // the first factors are drawn at random, so the curves are alike, not equal; the numbers sent are the same
  const Losses powersgd = run_ours([](Replica& replica, comm::Hierarchy& h) {
    return strategies::make_powersgd(replica, h, {.reporting = kReporting, .rank = kFactors, .start_after = kStart});
  });
  const auto curve = theirs[0]["powersgd"]["losses"].get<std::vector<double>>();
  EXPECT_NEAR(mean_of_last_steps(powersgd.losses[0]), mean_of_last_steps(curve), 0.15 * mean_of_last_steps(curve));
  // of two ranks an all-reduce sends the buffer once, together twice
  const auto sent = powersgd.sent_after_start[0] + powersgd.sent_after_start[1];
  EXPECT_DOUBLE_EQ(static_cast<double>(sent) / 2 / sizeof(double) / (kSteps - kStart),
                   theirs[0]["powersgd"]["numbers_per_step"].get<double>());
}

}  // namespace
}  // namespace prunex
