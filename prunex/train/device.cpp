#include "prunex/train/device.h"

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

/// By way of page-locked memory, so that nobody waits for what the device still does.
at::Tensor on_device(const at::Tensor& tensor, const c10::Device& device) {
  if (device.is_cpu() || device.is_meta() || tensor.device() == device) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), true);
}

data::Batch on_device(const data::Batch& batch, const c10::Device& device) {
  return {on_device(batch.images, device), on_device(batch.labels, device)};
}

}  // namespace prunex::train
