#include "prunex/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "prunex/data/loader.h"
#include "prunex/train/device.h"
#include "prunex/train/local_step.h"
#include "prunex/train/loss.h"

namespace prunex::train {
namespace {

constexpr int64_t kEvaluationBatch = 256;
constexpr int64_t kCalibrationImages = 1024, kCalibrationBatch = 128;
constexpr uint64_t kCalibrationSeed = 1;

/// running statistic -> the share that a batch has in it after one pass: 1 - (1 - m1)(1 - m2) … of the momenta of all
/// batch norms that update it.
std::map<std::string, double> shares_of_batch(const program::Graph& graph) {
  std::map<std::string, double> shares;
  for (const auto& node : graph.nodes) {
    if (node.target != "aten::batch_norm") continue;
    for (const char* statistic : {"running_mean", "running_var"}) {
      const program::ValueId value = node.tensor(statistic);
      if (value == program::kNoValue) continue;
      double& share = shares[graph.owner(graph.values[value].weight)];
      share = 1 - (1 - share) * (1 - program::momentum_of(node));
    }
  }
  return shares;
}

/// Those that a device computes with: cuDNN reads vectors of batch norm 16 bytes at a time, and views begin anywhere.
TensorDict aligned(const TensorDict& tensors) {
  TensorDict result;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    const bool anywhere = !tensor.is_cpu() && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 != 0;
    result.insert(item.key(), anywhere ? tensor.clone() : tensor);
  }
  return result;
}

/// One train-mode pass from zeroed statistics leaves the batch's statistics in them, times its share.
void add_batch_statistics(const program::Program& program, Weights& scratch, const at::Tensor& images,
                          const std::map<std::string, double>& shares, TensorDict& sums) {
  for (const auto& [name, share] : shares) scratch.buffers[name].zero_();
  program.run({images}, scratch, program::Mode::kTrain);
  for (auto& sum : sums) {
    sum.value().add_(scratch.buffers[sum.key()].to(at::kDouble), 1.0 / shares.at(sum.key()));
  }
}

/// {summed loss, correct answers by class …} of these images, on the CPU, read once.
at::Tensor sums_over(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                     const comm::Range& images) {
  at::NoGradGuard no_grad;
  const auto device = device_of(weights);
  at::Tensor loss = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device));
  at::Tensor correct = at::zeros({dataset.classes}, loss.options());
  const int64_t size = program.graph().batch_of(kEvaluationBatch);
  for (int64_t first = images.begin; first < images.end; first += size) {
    const auto batch = on_device(data::evaluation_batch(dataset, first, std::min(first + size, images.end)), device);
    const at::Tensor logits = in_fp32(program.run({batch.images}, weights, program::Mode::kEval).front());
    correct.index_add_(0, batch.labels, logits.argmax(1).eq(batch.labels).to(at::kDouble));
    loss.add_(at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum));
  }
  return at::cat({loss, correct}).cpu();
}

Score score_of(const at::Tensor& sums, double images) {
  const at::Tensor correct = sums.slice(0, 1);
  const auto* by_class = correct.const_data_ptr<double>();
  return {
      correct.sum().item<double>() / images, sums[0].item<double>() / images, {by_class, by_class + correct.numel()}};
}

}  // namespace

comm::Range images_of_rank(const data::Dataset& dataset, const comm::Communicator& group) {
  return {dataset.size() * group.rank() / group.size(), dataset.size() * (group.rank() + 1) / group.size()};
}

Score evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset) {
  return score_of(sums_over(program, weights, dataset, {0, dataset.size()}), static_cast<double>(dataset.size()));
}

Score evaluate(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
               comm::Communicator& world, comm::Communicator* owners) {
  const comm::Range own = images_of_rank(dataset, owners != nullptr ? *owners : world);
  at::Tensor sums = at::cat({sums_over(program, weights, dataset, own), at::full({1}, own.size(), at::kDouble)});
  world.all_reduce(sums);
  return score_of(sums.slice(0, 0, -1), sums[-1].item<double>());
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
  const auto batch = data::evaluation_batch(dataset, 0, images);
  return median_milliseconds(program, weights, {on_device(batch, device_of(weights)).images});
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

data::Dataset calibration_images(const data::Dataset& training, uint64_t seed) {
  return data::first_augmented(training, seed, kCalibrationImages);
}

namespace {

/// Of so many. Where nodes have batches of their own, as many for every rank of all.
std::vector<int64_t> batches_of_rank(int64_t batches, const comm::Communicator& world,
                                     const comm::Communicator* owners) {
  std::vector<int64_t> own;
  if (owners == nullptr) {
    for (int64_t b = world.rank(); b < batches; b += world.size()) own.push_back(b);
    return own;
  }
  const int64_t each = std::max<int64_t>(1, batches / world.size());
  for (int64_t i = 0; i < each; ++i) own.push_back((owners->rank() * each + i) % batches);
  return own;
}

}  // namespace

Weights with_estimated_statistics(const program::Program& program, const Weights& weights,
                                  const data::Dataset& calibration, comm::Communicator& world,
                                  const comm::Communicator* owners) {
  at::NoGradGuard no_grad;
  const auto shares = shares_of_batch(program.graph());
  Weights estimated{aligned(weights.params), TensorDict()};
  for (const auto& buffer : weights.buffers) estimated.buffers.insert(buffer.key(), buffer.value().clone());
  TensorDict sums;
  for (const auto& [name, share] : shares) {
    sums.insert(name, at::zeros_like(weights.buffers[name], at::kDouble));
  }
  if (sums.is_empty()) return estimated;

  const int64_t size = program.graph().batch_of(kCalibrationBatch);
  const int64_t batches = std::max<int64_t>(1, calibration.size() / size);
  const auto own = batches_of_rank(batches, world, owners);
  for (const int64_t b : own) {
    const int64_t end = std::min((b + 1) * size, calibration.size());
    const auto batch = on_device(data::evaluation_batch(calibration, b * size, end), device_of(weights));
    seed_dropout(device_of(weights), kCalibrationSeed, 0, b);  // the same noise whenever it is asked, on any rank
    add_batch_statistics(program, estimated, batch.images, shares, sums);
  }
  at::Tensor flat = at::cat(sums.values());
  world.all_reduce(flat);
  const int64_t of_all = owners == nullptr ? batches : static_cast<int64_t>(own.size()) * world.size();
  flat.div_(static_cast<double>(of_all));
  int64_t offset = 0;
  for (auto& sum : sums) {
    estimated.buffers[sum.key()].copy_(flat.narrow(0, offset, sum.value().numel()));
    offset += sum.value().numel();
  }
  for (const auto& buffer : weights.buffers) {
    if (sums.find(buffer.key()) == nullptr) estimated.buffers[buffer.key()].copy_(buffer.value());
  }
  return estimated;
}

Weights Evaluator::with_statistics(const program::Program& program, const Weights& weights) const {
  return with_estimated_statistics(program, weights, calibration_, world(),
                                   files_by_node_ ? ranks_.node.get() : nullptr);
}

Score Evaluator::score(const Weights& weights, const data::Dataset& dataset, bool of_node) const {
  return evaluate(network_.program(), weights, dataset, world(), of_node ? ranks_.node.get() : nullptr);
}

}  // namespace prunex::train
