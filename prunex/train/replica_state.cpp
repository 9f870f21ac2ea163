#include "prunex/train/replica_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace prunex::train {

void store_state(Checkpoint& checkpoint, const strategies::Strategy& strategy, const Replica& replica) {
  const strategies::State state = strategy.state();
  checkpoint.node = state.node;
  checkpoint.rank = state.rank;
  for (const auto& item : state.global) {
    const bool product = item.key().starts_with("z/");
    (product ? checkpoint.product : checkpoint.node).insert(item.key().substr(product ? 2 : 0), item.value());
  }
  for (const auto& item : replica.momentum) checkpoint.rank.insert("momentum/" + item.key(), item.value());
  for (const auto& item : replica.weights.params) checkpoint.rank.insert("theta/" + item.key(), item.value().detach());
}

void load_state(const Checkpoint& checkpoint, const sparsity::Cut* cut, strategies::Strategy& strategy,
                Replica& replica) {
  at::NoGradGuard no_grad;
  strategies::State state{.global = checkpoint.node, .node = checkpoint.node, .rank = checkpoint.rank};
  for (const auto& item : checkpoint.product) state.global.insert("z/" + item.key(), item.value());
  strategy.load(state, cut, replica);
  for (auto& item : replica.weights.params) item.value().copy_(checkpoint.rank["theta/" + item.key()]);
  for (auto& item : replica.weights.buffers) item.value().copy_(checkpoint.product[item.key()]);
  for (auto& item : replica.momentum) item.value().copy_(checkpoint.rank["momentum/" + item.key()]);
}

}  // namespace prunex::train
