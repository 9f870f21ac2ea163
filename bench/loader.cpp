// Batches of 128 images: the loader must stay far below the time of a training step.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <algorithm>

#include "prunex/data/load.h"
#include "prunex/data/loader.h"

namespace prunex::data {
namespace {

constexpr int64_t kBatch = 128;

Dataset images(int64_t size, int64_t side, Augmentation augmentation) {
  return {.name = "bench",
          .images = at::arange(size * 3 * side * side, at::kInt)
                        .to(at::kByte)
                        .reshape({size, 3, side, side})
                        .contiguous(at::MemoryFormat::ChannelsLast),
          .labels = at::zeros({size}, at::kLong),
          .classes = 1,
          .mean = {0.5, 0.5, 0.5},
          .std = {0.25, 0.25, 0.25},
          .augmentation = augmentation};
}

// state.range: side of the images, padding of the crop (with the flip) or -1 for neither.
void training_batch(benchmark::State& state) {
  int64_t padding = state.range(1);
  Augmentation augmentation{.padding = std::max<int64_t>(padding, 0), .flip = padding >= 0};
  Loader loader(images(state.range(0) <= 32 ? 50000 : 256, state.range(0), augmentation), {.batch_size = kBatch});
  int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(loader.batch(0, step++ % loader.steps_per_epoch()));
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(training_batch)
    ->ArgNames({"side", "padding"})
    ->Args({32, -1})
    ->Args({32, 4})
    ->Args({224, 4})
    ->Unit(benchmark::kMillisecond);

void evaluation_batch(benchmark::State& state) {
  Dataset dataset = images(10000, 32, {});
  for (auto _ : state) benchmark::DoNotOptimize(evaluation_batch(dataset, 1000, 1000 + kBatch));
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(evaluation_batch)->Unit(benchmark::kMillisecond);

// The first batch of an epoch draws its permutation.
void first_batch_of_an_epoch(benchmark::State& state) {
  Loader loader(images(50000, 32, {}), {.batch_size = kBatch});
  int64_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(loader.batch(epoch++, 0));
}
BENCHMARK(first_batch_of_an_epoch)->Unit(benchmark::kMillisecond);

void thousand_synthetic_images(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(make_synthetic(1000, 0));
}
BENCHMARK(thousand_synthetic_images)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace prunex::data
