// Which rank stands on which node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prunex::comm {

inline constexpr int kMostRanks = 1'000'000;

/// Throws std::invalid_argument for more ranks than kMostRanks.
void expect_countable(int64_t nodes, int64_t ranks_per_node);

/// Where one rank stands. Ranks are numbered node by node; nodes may hold different numbers of them.
struct Layout {
  std::vector<int> node_sizes = {1};  ///< ranks on each node: P_i
  int rank = 0;                       ///< this one
  int sites = 1;                      ///< the nodes form so many equal, consecutive shares, each behind one slow link

  /// Of as many ranks as expect_countable() allows.
  static Layout even(int nodes, int ranks_per_node, int rank = 0);

  int nodes() const { return static_cast<int>(node_sizes.size()); }
  int world_size() const;
  int node() const { return node_of(rank); }
  int node_of(int of_rank) const;
  int local_rank() const { return rank - first_rank(node()); }
  int ranks_here() const { return node_sizes[node()]; }
  int first_rank(int node) const;

  /// Whether all nodes hold the same number of ranks.
  bool is_even() const;
  /// P of docs/algorithm.md where nodes differ.
  double mean_node_size() const;
  /// Rail p joins the local ranks p of all nodes, for p below the size of the smallest node.
  int rails() const;
  bool on_rail() const { return local_rank() < rails(); }

  int nodes_per_site() const { return nodes() / sites; }
  int site() const { return node() / nodes_per_site(); }
};

/// Throws std::invalid_argument unless every node has a rank, the rank exists and the sites divide the nodes.
void check(const Layout& layout);

/// "2 nodes x 3 ranks", "nodes of 2, 1, 1 ranks", "… on 2 sites": equal for the ranks of one run.
std::string describe(const Layout& layout);

/// A group to be: its name, unique in the run, and its members by world rank, in the order of their ranks in the group.
struct Group {
  std::string name;
  std::vector<int> members;
  int rank = 0;  ///< mine, in the group
};

/// Where each member stands.
std::vector<int> nodes_of(const Layout& layout, const Group& group);

}  // namespace prunex::comm
