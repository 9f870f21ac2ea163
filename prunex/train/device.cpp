#include "prunex/train/local_step.h"

#include <ATen/ATen.h>

namespace prunex::train {
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
