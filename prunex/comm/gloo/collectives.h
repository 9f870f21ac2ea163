// Collectives over a mesh, on raw memory. All ranks of the group call each with the same arguments but for the data.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/comm/gloo/mesh.h"
#include "prunex/comm/gloo/ring.h"
#include "prunex/comm/range.h"
#include "prunex/comm/reduction.h"

namespace prunex::comm {

/// buffer[0, count) <- the reduction over ranks.
void all_reduce(Mesh& mesh, FlatBuffer buffer, int64_t count, ReduceFunction reduce);

/// Down a binomial tree.
void broadcast(Mesh& mesh, FlatBuffer buffer, int64_t count, int root);

/// Every rank sends the others their parts and adds up its own, in the order of ranks.
void reduce_scatter(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts, ReduceFunction reduce);

/// Every rank sends its part to the others.
void all_gather(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts);

/// Every rank sends the others their parts of its input; output: what all ranks have for this one, in their order.
void all_to_all(Mesh& mesh, FlatBuffer output, FlatBuffer input, const std::vector<Range>& parts);

/// Dissemination: in round i a rank tells the one 2^i further on, and hears from the one 2^i before.
void barrier(Mesh& mesh);

/// The ranks that `rank` exchanges messages with, sorted.
std::vector<int> ring_peers(int rank, int size);
std::vector<int> tree_peers(int rank, int size, int root);
std::vector<int> barrier_peers(int rank, int size);
std::vector<int> all_peers(int rank, int size);

}  // namespace prunex::comm
