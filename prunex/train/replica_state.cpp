#include "prunex/train/replica_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace prunex::train {
namespace {

std::string sizes_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// The saved tensor of that name, of the shape of `like`: what is copied could be broadcast.
at::Tensor saved(const TensorDict& state, const std::string& name, const at::Tensor& like) {
  const at::Tensor* tensor = state.find(name);
  if (tensor == nullptr) throw std::invalid_argument(fmt::format("has no tensor {}", name));
  if (tensor->sizes() == like.sizes()) return *tensor;
  throw std::invalid_argument(fmt::format("tensor {} is {}, wanted {}", name, sizes_of(*tensor), sizes_of(like)));
}

}  // namespace

void store_state(Checkpoint& checkpoint, const strategies::Strategy& strategy, const Replica& replica) {
  for (const auto& item : strategy.state()) {
    const auto& name = item.key();
    const auto role = strategies::role_of(name);
    if (name.starts_with("z/")) {
      checkpoint.product.insert(name.substr(2), item.value());
    } else {
      (role == strategies::Role::kRank ? checkpoint.rank : checkpoint.node).insert(name, item.value());
    }
  }
  for (const auto& item : replica.momentum) checkpoint.rank.insert("momentum/" + item.key(), item.value());
  for (const auto& item : replica.weights.params) checkpoint.rank.insert("theta/" + item.key(), item.value().detach());
}

void load_state(const Checkpoint& checkpoint, const sparsity::Cut* cut, strategies::Strategy& strategy,
                Replica& replica) {
  at::NoGradGuard no_grad;
  TensorDict state = checkpoint.node;
  for (const auto& item : checkpoint.product) state.insert("z/" + item.key(), item.value());
  for (const auto& item : checkpoint.rank) state.insert(item.key(), item.value());
  const auto put = [&](const std::string& role, auto& item) {
    item.value().copy_(saved(state, role + item.key(), item.value()));
  };
  try {
    strategy.load(state, cut, replica);
  } catch (const c10::Error&) {
    throw std::invalid_argument("its tensors are not those of such a run");
  }
  for (const auto& item : strategy.state()) saved(state, item.key(), item.value());
  for (auto& item : replica.weights.params) put("theta/", item);
  for (auto& item : replica.weights.buffers) put("z/", item);
  for (auto& item : replica.momentum) put("momentum/", item);
}

}  // namespace prunex::train
