// A training step of a built-in network through Program::run; bench/program.py is the same in eager Python.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>

#include "prunex/models/models.h"

namespace prunex {
namespace {

constexpr int64_t kBatch = 2;

double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

void train_step(benchmark::State& state, const std::string& name, int64_t size) {
  at::set_num_threads(1);
  auto model = models::make_model(name, {.height = size, .width = size});
  const auto x = at::randn({kBatch, 3, size, size});
  for (auto _ : state) {
    model.program.run({x}, model.weights, program::Mode::kTrain)[0].sum().backward();
    for (auto& item : model.weights.params) item.value().mutable_grad().reset();
  }
}

// Tiny images: what is measured is the cost of the calls, not of the arithmetic.
BENCHMARK_CAPTURE(train_step, resnet20, "resnet20", 8)
    ->Repetitions(20)
    ->ComputeStatistics("smallest", smallest)
    ->ReportAggregatesOnly();
BENCHMARK_CAPTURE(train_step, resnet18, "resnet18", 32)
    ->Repetitions(20)
    ->ComputeStatistics("smallest", smallest)
    ->ReportAggregatesOnly();

}  // namespace
}  // namespace prunex
