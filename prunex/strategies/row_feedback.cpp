#include "prunex/strategies/row_feedback.h"

#include <ATen/ATen.h>

#include "prunex/strategies/dictionaries.h"

namespace prunex::strategies {

RowFeedback::RowFeedback(const RowShards& shards, const TensorDict& tensors, int shard)
    : shards_(shards),
      shard_(shard),
      sent_(zeros_like(shards.rows(tensors, shard))),
      returned_(zeros_like(shards.rows(tensors, shard))) {}

Feedback RowFeedback::pack(const ShardedCompaction& plan) const {
  const int64_t count = plan.parts()[static_cast<size_t>(shard_)].size();
  Feedback feedback{at::empty({count}), at::empty({count})};
  plan.pack_rows(sent_, feedback.sent, shard_);
  plan.pack_rows(returned_, feedback.returned, shard_);
  return feedback;
}

void RowFeedback::unpack(const Feedback& feedback, const ShardedCompaction& plan) {
  plan.unpack_rows(feedback.sent, sent_, shard_);
  plan.unpack_rows(feedback.returned, returned_, shard_);
}

void RowFeedback::cut(const sparsity::Cut& cut) {
  const auto rows = shards_.rows(cut, shard_);
  for (TensorDict* tensors : {&sent_, &returned_}) {
    sparsity::apply_cut(*tensors, rows);
    *tensors = with_rows(*tensors);
  }
}

void RowFeedback::save(TensorDict& state) const {
  for (const auto& tensor : sent_) state.insert("feedback_sent/" + tensor.key(), tensor.value());
  for (const auto& tensor : returned_) state.insert("feedback_returned/" + tensor.key(), tensor.value());
}

void RowFeedback::load(const TensorDict& state) {
  for (auto& tensor : sent_) tensor.value().copy_(state["feedback_sent/" + tensor.key()]);
  for (auto& tensor : returned_) tensor.value().copy_(state["feedback_returned/" + tensor.key()]);
}

}  // namespace prunex::strategies
