#include "prunex/strategies/exchange/exchange_buffer.h"

#include <ATen/ATen.h>

#include "prunex/strategies/dictionaries.h"

namespace prunex::strategies {
namespace {

const std::string kShards = "shards/";

/// Parameters, vectors last, and with fp32 the buffers that are averaged.
TensorDict exchanged_tensors(const Weights& weights, Payload payload) {
  TensorDict matrices, vectors;
  for (const auto& tensor : weights.params) {
    (tensor.value().dim() > 1 ? matrices : vectors).insert(tensor.key(), tensor.value().detach());
  }
  matrices.update(vectors);
  if (payload != Payload::kFp32) return matrices;
  for (const auto& buffer : weights.buffers) {
    if (is_averaged(buffer.value(), weights.params)) matrices.insert(buffer.key(), buffer.value());
  }
  return matrices;
}

}  // namespace

bool is_averaged(const at::Tensor& buffer, const TensorDict& params) {
  return !params.is_empty() && buffer.scalar_type() == params.front().value().scalar_type();
}

int64_t averaged_numbers(const Weights& weights) {
  int64_t numbers = 0;
  for (const auto& buffer : weights.buffers) {
    if (is_averaged(buffer.value(), weights.params)) numbers += buffer.value().numel();
  }
  return numbers;
}

ExchangeBuffer::ExchangeBuffer(const Weights& weights, const ExchangeOptions& options, RailExchange& ranks)
    : ranks_(ranks),
      codec_(options.payload),
      work_(exchanged_tensors(weights, options.payload)),
      shards_(work_.tensors, ranks.rails(), ranks.layout().ranks_here()),
      parts_(shards_.parts(work_.tensors)),
      plan_(shards_, work_.tensors, sparsity::Supports()),
      packed_(at::empty({0}, work_.buffer.options())) {
  if (options.payload != Payload::kFp32) set_feedback({zeros_like(rows()), zeros_like(rows())});
}

Weights ExchangeBuffer::as_weights(const TensorDict& params, const TensorDict& buffers) {
  Weights weights;
  for (const auto& param : params) weights.params.insert(param.key(), work_.tensors[param.key()]);
  for (const auto& buffer : buffers) {
    weights.buffers.insert(buffer.key(), holds(buffer.key()) ? work_.tensors[buffer.key()] : buffer.value());
  }
  return weights;
}

void ExchangeBuffer::set_alive(const sparsity::Supports& alive) {
  const auto feedback = feedback_by_tensor();
  plan_ = ShardedCompaction(shards_, work_.tensors, alive);
  if (feedback_) set_feedback(feedback);
}

void ExchangeBuffer::sum_in_node(bool alive) {
  if (ranks_.layout().ranks_here() == 1) return;
  if (!alive || plan_.full()) return ranks_.scatter_in_node(work_.buffer, parts_);
  at::Tensor buffer = pack(work_.tensors);
  ranks_.scatter_in_node(buffer, plan_.parts());
  plan_.unpack(buffer, work_.tensors, mine());
}

void ExchangeBuffer::share_in_node(const ShardedCompaction& plan, TensorDict& tensors) {
  const TensorDict own = in_order_of(tensors, work_.tensors);
  if (ranks_.layout().ranks_here() == 1) {
    copy(tensors, own);
    return;
  }
  packed_.resize_({plan.numel()});
  plan.pack(own, packed_, mine());
  ranks_.gather_in_node(packed_, plan.parts());
  plan.unpack(packed_, tensors);
}

void ExchangeBuffer::clear_other_rows() {
  const comm::Range& own = parts_[static_cast<size_t>(mine())];
  work_.buffer.narrow(0, 0, own.begin).zero_();
  work_.buffer.narrow(0, own.end, work_.buffer.numel() - own.end).zero_();
}

/// What is alive of `tensors`, which are those of work or like them.
at::Tensor ExchangeBuffer::pack(const TensorDict& tensors) {
  if (!plan_.full()) {
    packed_.resize_({plan_.numel()});
    plan_.pack(tensors, packed_);
    return packed_;
  }
  for (const auto& tensor : tensors) work_.tensors[tensor.key()].copy_(tensor.value());
  return work_.buffer;
}

void ExchangeBuffer::unpack(const at::Tensor& buffer) {
  if (!plan_.full()) plan_.unpack(buffer, work_.tensors);
}

void ExchangeBuffer::mean_over_nodes(const TensorDict& z, PhaseClock& clock) {
  at::Tensor buffer = work_.buffer;
  if (!plan_.full()) {
    buffer = packed_.resize_({plan_.numel()});
    plan_.pack(work_.tensors, buffer, mine());
  }
  at::Tensor part = plan_.part_of(buffer, mine());
  clock.end("pack", part.nbytes());
  average_over_nodes(part, z);
  ranks_.gather_in_node(buffer, plan_.parts());
  clock.end("inter", part.nbytes());
  unpack(buffer);
  clock.end("unpack");
}

void ExchangeBuffer::mean_over_ranks(const Weights& weights, const TensorDict& z, PhaseClock& clock) {
  at::Tensor buffer = pack(exchanged_tensors(weights, codec_.payload()));
  clock.end("pack", buffer.nbytes());
  average_over_ranks(buffer, z);
  clock.end("inter", buffer.nbytes());
  unpack(buffer);
  clock.end("unpack");
}

at::Tensor ExchangeBuffer::take(const Weights& weights, PhaseClock& clock) {
  at::Tensor buffer = pack(exchanged_tensors(weights, codec_.payload()));
  clock.end("pack", buffer.nbytes());
  if (has_one_node()) return buffer;
  ranks_.scatter_in_node(buffer, plan_.parts());
  clock.end("intra", buffer.nbytes());
  return plan_.part_of(buffer, mine()).div_(ranks_.layout().ranks_here());
}

void ExchangeBuffer::mean_of_taken(at::Tensor taken, const TensorDict& z, PhaseClock& clock) {
  has_one_node() ? average_over_ranks(taken, z) : average_over_nodes(taken, z);
  clock.end("inter", taken.nbytes());
}

void ExchangeBuffer::give_mean(PhaseClock& clock) {
  at::Tensor buffer = plan_.full() ? work_.buffer : packed_;
  if (!has_one_node()) {
    ranks_.gather_in_node(buffer, plan_.parts());
    clock.end("intra", buffer.nbytes());
  }
  unpack(buffer);
  clock.end("unpack");
}

/// All of what is alive <- its mean over ranks.
void ExchangeBuffer::average_over_ranks(at::Tensor& buffer, const TensorDict& z) {
  if (!feedback_) {
    if (ranks_.share() != 1) buffer.mul_(ranks_.share());
    ranks_.sum_over_ranks(buffer);
    buffer.div_(ranks_.layout().world_size());
    return;
  }
  ranks_.scatter_in_node(buffer, plan_.parts());
  at::Tensor part = plan_.part_of(buffer, mine());
  average_over_nodes(part.div_(ranks_.layout().ranks_here()), z);
  ranks_.gather_in_node(buffer, plan_.parts());
}

/// My part of what is alive <- its mean over nodes.
void ExchangeBuffer::average_over_nodes(at::Tensor& part, const TensorDict& z) {
  const auto& layout = ranks_.layout();
  const double weight = ranks_.share() * layout.ranks_here() / layout.mean_node_size();
  if (!feedback_) {
    if (weight != 1) part.mul_(weight);
    ranks_.reduce_over_nodes(part);
    part.div_(layout.nodes());
    return;
  }
  const TensorDict z_rows = shards_.rows(in_order_of(work_.tensors, z), mine());
  at::Tensor packed_z;
  if (!plan_.full()) plan_.pack_rows(z_rows, packed_z = at::empty_like(part), mine());
  const auto add_z = [&](double sign) {
    if (packed_z.defined()) return void(part.add_(packed_z, sign));
    TensorDict own = rows();
    for (auto& row : own) row.value().add_(z_rows[row.key()], sign);
  };
  add_z(-1);
  part.mul_(weight);
  const int64_t vectors = plan_.vector_entries(mine());
  ranks_.compressed_mean_over_nodes(codec_, part, {part.numel() - vectors, vectors}, &*feedback_);
  add_z(1);
}

/// What is dead owes nothing.
std::array<TensorDict, 2> ExchangeBuffer::feedback_by_tensor() const {
  if (!feedback_) return {TensorDict(), TensorDict()};
  std::array<TensorDict, 2> by_tensor{zeros_like(rows()), zeros_like(rows())};
  plan_.unpack_rows(feedback_->sent, by_tensor[0], mine());
  plan_.unpack_rows(feedback_->returned, by_tensor[1], mine());
  return by_tensor;
}

void ExchangeBuffer::set_feedback(const std::array<TensorDict, 2>& rows) {
  const int64_t count = plan_.parts()[static_cast<size_t>(mine())].size();
  feedback_ = {at::empty({count}, work_.buffer.options()), at::empty({count}, work_.buffer.options())};
  plan_.pack_rows(rows[0], feedback_->sent, mine());
  plan_.pack_rows(rows[1], feedback_->returned, mine());
}

void ExchangeBuffer::forget_left_out(const std::function<bool(const std::string&)>& of) {
  if (!feedback_) return;
  auto feedback = feedback_by_tensor();
  for (TensorDict& rows : feedback) {
    for (auto& row : rows) {
      if (of(row.key())) row.value().zero_();
    }
  }
  set_feedback(feedback);
}

void ExchangeBuffer::cut(const sparsity::Cut& cut, const Weights& weights, const sparsity::Supports& alive) {
  auto feedback = feedback_by_tensor();
  for (auto& rows : feedback) {
    sparsity::apply_cut(rows, shards_.rows(cut, mine()));
    rows = with_rows(rows);
  }
  shards_.cut(cut);
  work_ = FlatTensors(exchanged_tensors(weights, codec_.payload()));
  parts_ = shards_.parts(work_.tensors);
  plan_ = ShardedCompaction(shards_, work_.tensors, alive);
  if (feedback_) set_feedback(feedback);
}

void ExchangeBuffer::save(State& state) const {
  const auto feedback = feedback_by_tensor();
  store(state.rank, "feedback_sent/", feedback[0]);
  store(state.rank, "feedback_returned/", feedback[1]);
}

void ExchangeBuffer::load(const State& state) {
  auto feedback = feedback_by_tensor();
  restore(feedback[0], state.rank, "feedback_sent/");
  restore(feedback[1], state.rank, "feedback_returned/");
  if (feedback_) set_feedback(feedback);
}

void ExchangeBuffer::save_shards(State& state, const std::string& of) const {
  store(state.global, kShards + of, shards_.bounds());
}

void ExchangeBuffer::load_shards(const State& state, const std::string& of) {
  shards_.set_bounds(state.global, kShards + of);
  parts_ = shards_.parts(work_.tensors);
  plan_ = ShardedCompaction(shards_, work_.tensors, sparsity::Supports());
  if (feedback_) set_feedback({zeros_like(rows()), zeros_like(rows())});
}

}  // namespace prunex::strategies
