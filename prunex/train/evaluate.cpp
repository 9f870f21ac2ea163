#include "prunex/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "prunex/train/batches.h"
#include "prunex/train/device.h"
#include "prunex/train/loss.h"

namespace prunex::train {
namespace {

/// {summed loss, correct answers by class …, images by class …} of these images, on the CPU, read once.
at::Tensor sums_over(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                     const comm::Range& images) {
  at::NoGradGuard no_grad;
  at::Tensor loss = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device_of(weights)));
  at::Tensor correct = at::zeros({dataset.classes}, loss.options()), shown = at::zeros_like(correct);
  for (const comm::Range& part : batches_of(images, program.graph(), kEvaluationBatch)) {
    const auto batch = batch_for(weights, dataset, part);
    const at::Tensor logits = in_fp32(program.run({batch.images}, weights, program::Mode::kEval).front());
    correct.index_add_(0, batch.labels, logits.argmax(1).eq(batch.labels).to(at::kDouble));
    shown.index_add_(0, batch.labels, at::ones_like(batch.labels, loss.options()));
    loss.add_(at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum));
  }
  return at::cat({loss, correct, shown}).cpu();
}

Evaluation evaluation_of(const at::Tensor& sums) {
  const auto halves = sums.slice(0, 1).chunk(2);
  const auto values = [](const at::Tensor& half) {
    return std::vector<double>(half.const_data_ptr<double>(), half.const_data_ptr<double>() + half.numel());
  };
  const auto images = halves[1].sum().item<double>();
  return {halves[0].sum().item<double>() / images, sums[0].item<double>() / images, values(halves[0]),
          values(halves[1])};
}

}  // namespace

Evaluation evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset) {
  return evaluation_of(sums_over(program, weights, dataset, {0, dataset.size()}));
}

Evaluation evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                    comm::Communicator& world, comm::Communicator* owners) {
  const comm::Range own = images_of_rank(dataset, owners != nullptr ? *owners : world);
  at::Tensor sums = sums_over(program, weights, dataset, own);
  world.all_reduce(sums);
  return evaluation_of(sums);
}

namespace {

double median_milliseconds(const program::Program& program, const Weights& weights,
                           const std::vector<at::Tensor>& inputs) {
  constexpr int kWarmUp = 2, kRuns = 9;
  at::NoGradGuard no_grad;
  std::vector<double> times;
  for (int run = 0; run < kWarmUp + kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    program.run(inputs, weights, program::Mode::kEval).front().cpu();  // waits for a device
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (run >= kWarmUp) times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

}  // namespace

double milliseconds_per_batch(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                              int64_t batch_size) {
  const int64_t images = std::min(program.graph().batch_of(batch_size), dataset.size());
  return median_milliseconds(program, weights, {batch_for(weights, dataset, {0, images}).images});
}

double milliseconds_per_batch(const program::Model& model, int64_t batch_size) {
  const auto& graph = model.program.graph();
  std::vector<at::Tensor> inputs;
  for (const program::ValueId id : graph.inputs) {
    const auto& input = graph.values[id];
    const auto shape = program::sizes_of(input.shape, graph.batch_of(batch_size));
    const auto layout = shape.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const auto kind = at::TensorOptions(input.dtype).device(device_of(model.weights));
    inputs.push_back(at::zeros(shape, kind).contiguous(layout));
  }
  return median_milliseconds(model.program, model.weights, inputs);
}

}  // namespace prunex::train
