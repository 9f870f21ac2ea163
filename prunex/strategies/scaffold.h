// SCAFFOLD (arXiv 1910.06378): local SGD whose nodes correct their gradients by what makes them differ.
#pragma once

#include <memory>

#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

struct ScaffoldOptions {
  LocalSgd local;
  ExchangeOptions exchange;
};

/// Every local step adds c - c_node to the gradients. In an exchange c_node becomes the mean gradient of the node's
/// steps since the last one, weighted by their rates: for plain SGD the control variate's option II,
/// c_node - c + (z - theta) / sum of the rates. z and c are means over all ranks. The ranks of a node share c_node.
/// Broadcasts rank 0's weights. Throws std::invalid_argument for options that make no sense together.
std::unique_ptr<Strategy> make_scaffold(Replica& replica, comm::Hierarchy& ranks, const ScaffoldOptions& options);

}  // namespace prunex::strategies
