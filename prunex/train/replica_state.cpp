#include "prunex/train/replica_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace prunex::train {

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
  strategy.load(state, cut, replica);
  for (auto& item : replica.weights.params) item.value().copy_(state["theta/" + item.key()]);
  for (auto& item : replica.weights.buffers) item.value().copy_(state["z/" + item.key()]);
  for (auto& item : replica.momentum) item.value().copy_(state["momentum/" + item.key()]);
}

}  // namespace prunex::train
