#include "prunex/strategies/dictionaries.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

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

TensorDict in_order_of(const TensorDict& order, const TensorDict& tensors) {
  TensorDict ordered;
  for (const auto& name : order.keys()) ordered.insert(name, tensors[name]);
  return ordered;
}

void copy(TensorDict& to, const TensorDict& from) {
  for (auto& tensor : to) tensor.value().copy_(from[tensor.key()]);
}

void store(TensorDict& state, const std::string& prefix, const TensorDict& tensors) {
  for (const auto& tensor : tensors) state.insert(prefix + tensor.key(), tensor.value());
}

void restore(TensorDict& tensors, const TensorDict& state, const std::string& prefix) {
  for (auto& tensor : tensors) tensor.value().copy_(saved(state, prefix + tensor.key(), tensor.value().sizes()));
}

const at::Tensor& saved(const TensorDict& state, const std::string& name, at::IntArrayRef sizes) {
  const at::Tensor* tensor = state.find(name);
  if (tensor == nullptr) throw std::invalid_argument(fmt::format("has no tensor {}", name));
  if (tensor->sizes() == sizes) return *tensor;
  throw std::invalid_argument(
      fmt::format("tensor {} is [{}], wanted [{}]", name, fmt::join(tensor->sizes(), ", "), fmt::join(sizes, ", ")));
}

at::Tensor saved(const TensorDict& state, const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
  const at::Tensor& tensor = saved(state, name, sizes);
  if (tensor.scalar_type() == type) return tensor.cpu().contiguous();
  throw std::invalid_argument(
      fmt::format("tensor {} holds {}, wanted {}", name, toString(tensor.scalar_type()), toString(type)));
}

TensorDict with_rows(const TensorDict& tensors) {
  TensorDict left;
  for (const auto& tensor : tensors) {
    if (tensor.value().dim() == 0 || tensor.value().size(0) > 0) left.insert(tensor.key(), tensor.value());
  }
  return left;
}

}  // namespace prunex::strategies
