// Groups over TCP connections: the collectives that are made of their ranks' messages.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/tcp/mesh.h"

namespace prunex::comm {

/// Where a rank listens: the address of the interface, such as eth0; without one loopback if one_machine, else the
/// address of the host name. Throws std::invalid_argument if there is none.
std::string choose_address(const std::string& interface, bool one_machine);

/// Connects the group's ranks pairwise; all of them must call. An operation waits for a message for `timeout` at most.
std::unique_ptr<RingCommunicator> make_tcp_communicator(const Group& group, const Meeting& meeting,
                                                        const std::string& address, std::chrono::milliseconds timeout,
                                                        const Guard& guard);

// Collectives on raw memory. All ranks of the group call each with the same arguments but for the data.

/// What RingCommunicator::all_reduce_pieces does.
void ring_all_reduce(Mesh& mesh, FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks);

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
