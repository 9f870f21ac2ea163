#include "prunex/strategies/exchange/rail_exchange.h"

#include <ATen/ATen.h>

#include "prunex/tensors.h"

namespace prunex::strategies {

RailExchange::RailExchange(comm::Hierarchy& groups, ExchangeForm form)
    : groups_(groups), form_(form), rails_(form == ExchangeForm::kLeader ? 1 : groups.layout.rails()) {}

std::vector<comm::Range> RailExchange::even_parts(int64_t numel) const {
  auto parts = comm::parts({0, numel}, rails_);
  parts.resize(static_cast<size_t>(groups_.layout.ranks_here()), {numel, numel});
  return parts;
}

void RailExchange::sum_in_node(at::Tensor& buffer) {
  groups_.node->all_reduce(buffer);
}

void RailExchange::scatter_in_node(at::Tensor& buffer, const std::vector<comm::Range>& parts) {
  groups_.node->reduce_scatter(buffer, parts);
}

void RailExchange::gather_in_node(at::Tensor& buffer, const std::vector<comm::Range>& parts) {
  groups_.node->all_gather_parts(buffer, parts);
}

void RailExchange::reduce_over_nodes(at::Tensor& part, comm::Reduce reduce) {
  if (!groups_.site || reduce != comm::Reduce::kSum) return groups_.rail->all_reduce(part, reduce);
  const auto shares = comm::parts({0, part.numel()}, groups_.site->size());
  groups_.site->reduce_scatter(part, shares);
  at::Tensor share = comm::slice(part, shares[static_cast<size_t>(groups_.site->rank())]);
  groups_.cross->all_reduce(share);
  groups_.site->all_gather_parts(part, shares);
}

void RailExchange::compressed_mean_over_nodes(const Codec& codec, at::Tensor& part, EntryCounts counts,
                                              Feedback* feedback) {
  compressed_mean(*groups_.rail, codec, part, counts, feedback);
}

void RailExchange::unite_over_nodes(at::Tensor& buffer) {
  const auto parts = even_parts(buffer.numel());
  at::Tensor part = comm::slice(buffer, parts[static_cast<size_t>(mine())]);
  reduce_over_nodes(part, comm::Reduce::kMax);
  gather_in_node(buffer, parts);
}

void RailExchange::sum_over_ranks(at::Tensor& buffer) {
  if (form_ == ExchangeForm::kFlat) return groups_.flat->all_reduce(buffer);
  if (form_ == ExchangeForm::kSharded && groups_.pipeline) return groups_.pipeline->all_reduce(buffer);
  const auto parts = even_parts(buffer.numel());
  scatter_in_node(buffer, parts);
  at::Tensor part = comm::slice(buffer, parts[static_cast<size_t>(mine())]);
  reduce_over_nodes(part);
  gather_in_node(buffer, parts);
}

void RailExchange::mean_over_ranks(at::Tensor& buffer, const Codec& codec) {
  if (codec.payload() == Payload::kFp32) {
    sum_over_ranks(buffer);
    buffer.div_(layout().world_size());
    return;
  }
  const auto parts = even_parts(buffer.numel());
  scatter_in_node(buffer, parts);
  at::Tensor part = comm::slice(buffer, parts[static_cast<size_t>(mine())]);
  part.div_(layout().mean_node_size());
  compressed_mean_over_nodes(codec, part, {part.numel(), 0});
  gather_in_node(buffer, parts);
}

void RailExchange::mean_over_ranks(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  std::vector<at::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(in_memory_order(tensor));
  at::Tensor buffer = at::cat(flat);
  mean_over_ranks(buffer);
  int64_t begin = 0;
  for (auto& tensor : flat) {
    tensor.copy_(buffer.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
}

}  // namespace prunex::strategies
