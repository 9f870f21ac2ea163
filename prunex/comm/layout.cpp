#include "prunex/comm/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace prunex::comm {

void expect_countable(int64_t nodes, int64_t ranks_per_node) {
  if (nodes <= kMostRanks && ranks_per_node <= kMostRanks && nodes * ranks_per_node <= kMostRanks) return;
  throw std::invalid_argument(
      fmt::format("`nodes`, `ranks_per_node`: got {} nodes of {} ranks, wanted at most {} ranks", nodes, ranks_per_node,
                  kMostRanks));
}

Layout Layout::even(int nodes, int ranks_per_node, int rank) {
  expect_countable(nodes, ranks_per_node);
  return {std::vector<int>(static_cast<size_t>(std::max(nodes, 0)), ranks_per_node), rank};
}

int Layout::world_size() const {
  return std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
}

int Layout::node_of(int of_rank) const {
  int node = 0;
  for (int next = node_sizes[0]; of_rank >= next; next += node_sizes[++node]) {
  }
  return node;
}

int Layout::first_rank(int node) const {
  return std::accumulate(node_sizes.begin(), node_sizes.begin() + node, 0);
}

bool Layout::is_even() const {
  return std::all_of(node_sizes.begin(), node_sizes.end(), [&](int size) { return size == node_sizes[0]; });
}

double Layout::mean_node_size() const {
  return static_cast<double>(world_size()) / nodes();
}

int Layout::rails() const {
  return *std::min_element(node_sizes.begin(), node_sizes.end());
}

void check(const Layout& layout) {
  const auto shape = describe(layout);
  if (layout.node_sizes.empty() || layout.rails() < 1) {
    throw std::invalid_argument(fmt::format("[comm] {}: every node needs a rank", shape));
  }
  if (std::accumulate(layout.node_sizes.begin(), layout.node_sizes.end(), int64_t{0}) > kMostRanks) {
    throw std::invalid_argument(fmt::format("[comm] {}: wanted at most {} ranks", shape, kMostRanks));
  }
  if (layout.rank < 0 || layout.rank >= layout.world_size()) {
    throw std::invalid_argument(fmt::format("[comm] rank {} of {}: no such rank", layout.rank, shape));
  }
  if (layout.sites < 1 || layout.nodes() % layout.sites != 0) {
    throw std::invalid_argument(fmt::format("[comm] {}: the sites must divide the nodes", shape));
  }
}

std::string describe(const Layout& layout) {
  const auto& sizes = layout.node_sizes;
  std::string text = sizes.empty() || layout.is_even()
                         ? fmt::format("{} nodes x {} ranks", sizes.size(), sizes.empty() ? 0 : sizes[0])
                         : fmt::format("nodes of {} ranks", fmt::join(sizes, ", "));
  if (layout.sites != 1) text += fmt::format(" on {} sites", layout.sites);
  return text;
}

std::vector<int> nodes_of(const Layout& layout, const Group& group) {
  std::vector<int> nodes;
  for (const int member : group.members) nodes.push_back(layout.node_of(member));
  return nodes;
}

}  // namespace prunex::comm
