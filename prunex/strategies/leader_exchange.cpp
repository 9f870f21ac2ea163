#include "prunex/strategies/leader_exchange.h"

namespace prunex::strategies {

void LeaderExchange::sum_in_node(at::Tensor& buffer) {
  groups_.node->all_reduce(buffer);
}

void LeaderExchange::reduce_over_nodes(at::Tensor& buffer, comm::Reduce reduce) {
  if (nodes() == 1) return;
  if (leader()) groups_.rail->all_reduce(buffer, reduce);
  groups_.node->broadcast(buffer);
}

void LeaderExchange::sum_over_ranks(at::Tensor& buffer) {
  sum_in_node(buffer);
  reduce_over_nodes(buffer);
}

}  // namespace prunex::strategies
