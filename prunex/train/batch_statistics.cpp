#include "prunex/train/batch_statistics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "prunex/data/loader.h"
#include "prunex/train/batches.h"
#include "prunex/train/device.h"
#include "prunex/train/local_step.h"

namespace prunex::train {
namespace {

constexpr int64_t kCalibrationImages = 1024, kCalibrationBatch = 128;
constexpr uint64_t kCalibrationSeed = 1;

/// running statistic -> the share that a batch has in it after one pass: 1 - (1 - m1)(1 - m2) … of the momenta of all
/// norms that update it.
std::map<std::string, double> shares_of_batch(const program::Graph& graph) {
  std::map<std::string, double> shares;
  for (const auto& node : graph.nodes) {
    if (!program::may_keep_statistics(node)) continue;
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

data::Dataset calibration_images(const data::Dataset& training, uint64_t seed) {
  return data::first_augmented(training, seed, kCalibrationImages);
}

bool has_statistics(const program::Graph& graph) {
  return !shares_of_batch(graph).empty();
}

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
    const auto batch = batch_for(weights, calibration, {b * size, std::min((b + 1) * size, calibration.size())});
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

}  // namespace prunex::train
