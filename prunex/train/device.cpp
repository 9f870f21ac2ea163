#include "prunex/train/device.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace prunex::train {
namespace {

constexpr const char* kStrategies[] = {"hsadmm", "hsadmm_flat", "local_sgd", "diloco", "one_shot"};

}  // namespace

void check_device(const TrainOptions& options, const c10::Device& device) {
  if (device.is_cpu()) return;
  if (std::find(std::begin(kStrategies), std::end(kStrategies), options.strategy) == std::end(kStrategies)) {
    throw std::invalid_argument(fmt::format("--device cuda: --strategy {} computes on the CPU, wanted one of {}",
                                            options.strategy, fmt::join(kStrategies, ", ")));
  }
  if (options.exchange.payload != strategies::Payload::kFp32) {
    throw std::invalid_argument(fmt::format("--device cuda: --payload {} is rounded on the CPU, wanted fp32",
                                            strategies::name_of(options.exchange.payload)));
  }
}

c10::Device device_of(const Weights& weights) {
  return weights.params.is_empty() ? c10::Device(at::kCPU) : weights.params.front().value().device();
}

program::Model on_device(program::Model model, const c10::Device& device) {
  if (device_of(model.weights) == device) return model;
  for (TensorDict* tensors : {&model.weights.params, &model.weights.buffers}) {
    for (auto& item : *tensors) {
      const bool trained = item.value().requires_grad();
      item.value() = item.value().detach().to(device).set_requires_grad(trained);
    }
  }
  return model;
}

data::Batch on_device(const data::Batch& batch, const c10::Device& device) {
  return {batch.images.to(device), batch.labels.to(device)};
}

}  // namespace prunex::train
