// What every optimizer's update costs next to the forward and backward pass that it follows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "prunex/models/models.h"
#include "prunex/train/local_step.h"
#include "prunex/train/optimizer.h"

namespace prunex::train {
namespace {

constexpr int64_t kImages = 64;
constexpr const char* kModels[] = {"resnet20", "resnet18"};

Replica replica_of_model(program::Model& model, Optimizer rule) {
  for (auto& theta : model.weights.params) {
    const auto format = theta.value().dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    theta.value() = theta.value().detach().contiguous(format).set_requires_grad(true);
  }
  return {model.weights, fresh_state(model.weights.params, rule)};
}

// state.range: model, rule.
void optimizer_update(benchmark::State& state) {
  at::set_num_threads(1);
  program::Model model = models::make_model(kModels[state.range(0)], {});
  const OptimizerOptions options{.learning_rate = 1e-3, .rule = static_cast<Optimizer>(state.range(1))};
  Replica replica = replica_of_model(model, options.rule);
  TensorDict gradients;
  for (const auto& item : replica.weights.params) gradients.insert(item.key(), at::randn_like(item.value().detach()));
  for (auto _ : state) {
    for (auto& item : replica.weights.params) item.value().mutable_grad() = gradients[item.key()];
    optimizer_step(replica, strategies::LocalTerms(), options);
  }
}
BENCHMARK(optimizer_update)
    ->ArgNames({"resnet18", "rule"})
    ->ArgsProduct({{0, 1}, {0, 1, 2, 3, 4}})
    ->Unit(benchmark::kMillisecond);

void gradients_of_a_batch(benchmark::State& state) {
  at::set_num_threads(1);
  program::Model model = models::make_model(kModels[state.range(0)], {});
  Replica replica = replica_of_model(model, Optimizer::kSgd);
  const data::Batch batch{at::randn({kImages, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast),
                          at::zeros({kImages}, at::kLong)};
  for (auto _ : state) {
    compute_gradients(model.program, replica, batch, Arithmetic::kFp32);
    for (auto& item : replica.weights.params) item.value().mutable_grad().reset();
  }
}
BENCHMARK(gradients_of_a_batch)->ArgName("resnet18")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace prunex::train
