#include "prunex/strategies/dictionaries.h"

#include <ATen/ATen.h>

namespace prunex::strategies {

TensorDict detached(const TensorDict& tensors) {
  TensorDict result;
  for (const auto& tensor : tensors) result.insert(tensor.key(), tensor.value().detach());
  return result;
}

TensorDict clones(const TensorDict& tensors) {
  TensorDict copies;
  for (const auto& tensor : tensors) copies.insert(tensor.key(), tensor.value().detach().clone());
  return copies;
}

TensorDict clones(const TensorDict& tensors, const std::vector<std::string>& names) {
  TensorDict copies;
  for (const auto& name : names) copies.insert(name, tensors[name].detach().clone());
  return copies;
}

TensorDict zeros_like(const TensorDict& tensors) {
  TensorDict zeros;
  for (const auto& tensor : tensors) zeros.insert(tensor.key(), at::zeros_like(tensor.value()));
  return zeros;
}

}  // namespace prunex::strategies
