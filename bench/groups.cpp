// Dependency groups of the built-in models: the analysis must be free beside one training step.
#include <benchmark/benchmark.h>

#include "prunex/channels/analysis.h"
#include "prunex/models/models.h"

namespace prunex::channels {
namespace {

void grouping(benchmark::State& state, const char* name) {
  const program::Model model = models::make_model(name, {.classes = 1000, .height = 224, .width = 224});
  for (auto _ : state) benchmark::DoNotOptimize(Analysis(model.program));
}
BENCHMARK_CAPTURE(grouping, resnet18, "resnet18")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grouping, resnet50, "resnet50")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grouping, resnet152, "resnet152")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(grouping, vgg16_bn, "vgg16_bn")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace prunex::channels
