// What a checkpoint holds of a strategy and a replica.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "prunex/strategies/dictionaries.h"
#include "prunex/train/run/checkpoint.h"

namespace prunex::train {

using strategies::State;

namespace {

constexpr const char* kUpdates = "updates";

/// Whether `state` has the tensors that the strategy would save now, in their sizes.
void expect_like(const TensorDict& state, const TensorDict& now) {
  for (const auto& item : now) strategies::saved(state, item.key(), item.value().sizes());
}

}  // namespace

void store_state(Checkpoint& checkpoint, const strategies::Strategy& strategy, const Replica& replica) {
  const State state = strategy.state();
  checkpoint.node = state.node;
  checkpoint.rank = state.rank;
  for (const auto& item : state.global) {
    const bool product = item.key().starts_with(State::kZ);
    (product ? checkpoint.product : checkpoint.node)
        .insert(item.key().substr(product ? std::strlen(State::kZ) : 0), item.value());
  }
  TensorDict& with_optimizer = strategy.in_step() ? checkpoint.node : checkpoint.rank;
  for (const auto& part : replica.optimizer) {
    for (const auto& item : part.value()) with_optimizer.insert(part.key() + "/" + item.key(), item.value());
  }
  with_optimizer.insert(kUpdates, at::scalar_tensor(replica.updates, at::kLong));
  for (const auto& item : replica.weights.params) checkpoint.rank.insert(kTheta + item.key(), item.value().detach());
}

void load_state(const Checkpoint& checkpoint, const sparsity::Cut* cut, strategies::Strategy& strategy,
                Replica& replica) {
  at::NoGradGuard no_grad;
  State state{.global = checkpoint.node, .node = checkpoint.node, .rank = checkpoint.rank};
  for (const auto& item : checkpoint.product) state.global.insert(State::kZ + item.key(), item.value());
  try {
    strategy.load(state, cut, replica);
  } catch (const c10::Error&) {
    throw std::invalid_argument("its tensors are not those of such a run");
  }
  const State now = strategy.state();
  expect_like(state.global, now.global);
  expect_like(state.node, now.node);
  expect_like(state.rank, now.rank);
  const auto put = [](const TensorDict& from, const std::string& name, at::Tensor& tensor) {
    tensor.copy_(strategies::saved(from, name, tensor.sizes()));
  };
  for (auto& item : replica.weights.params) put(checkpoint.rank, kTheta + item.key(), item.value());
  for (auto& item : replica.weights.buffers) put(checkpoint.product, item.key(), item.value());
  const auto put_memory = [&](const std::string& name, at::Tensor& tensor) {
    put(checkpoint.node.contains(name) ? checkpoint.node : checkpoint.rank, name, tensor);
  };
  for (auto& part : replica.optimizer) {
    for (auto& item : part.value()) put_memory(part.key() + "/" + item.key(), item.value());
  }
  at::Tensor updates = at::zeros({}, at::kLong);
  put_memory(kUpdates, updates);
  replica.updates = updates.item<int64_t>();
}

}  // namespace prunex::train
