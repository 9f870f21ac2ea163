// Groups over Gloo's TCP connections: the messages of their ranks, and the collectives made of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/rendezvous.h"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace prunex::comm {

/// What a rank's messages go through, and the numeric address where it listens for them.
struct Network {
  std::shared_ptr<gloo::transport::Device> device;
  std::string address;
};

/// interface: a name such as eth0, or empty for loopback if one_machine, else for the address of the host name.
/// Throws std::invalid_argument if it has no address.
Network make_network(const std::string& interface, bool one_machine);

/// Connects the group's ranks pairwise; all of them must call. An operation waits for a message for `timeout` at most.
std::unique_ptr<RingCommunicator> make_gloo_communicator(const Group& group, Meeting meeting, const Network& network,
                                                         std::chrono::milliseconds timeout, const Guard& guard);

/// All pairs of a group are connected. Gloo serves as transport only: it does not end a wait when the peer's connection
/// closes in the middle of a message, so everything that waits is known here and can be woken.
class Mesh {
 public:
  class Buffer;

  explicit Mesh(std::shared_ptr<gloo::Context> context);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const;
  int size() const;

  /// `count` numbers that no message of this group has had. All ranks ask in the same order for as many.
  uint64_t new_tags(uint64_t count);

  /// Ends all waits, present and future, with an exception that says `reason`, and closes the connections, so that the
  /// peers' waits end too. From any thread; only the first call counts.
  void abort(const std::string& reason);
  /// Empty, or why abort() was called.
  std::string abort_reason() const;

  /// The ranks to which the connection is broken: the only way to ask is to use it.
  std::vector<int> lost_ranks();

 private:
  void add(gloo::transport::UnboundBuffer* buffer);
  void remove(gloo::transport::UnboundBuffer* buffer);

  std::shared_ptr<gloo::Context> context_;
  uint64_t next_tag_ = 0;
  mutable std::mutex mutex_;
  std::unordered_set<gloo::transport::UnboundBuffer*> live_;
  std::string abort_reason_;
};

/// Memory that messages are sent from or received into. It must outlive its messages: wait for all of them. Offsets and
/// lengths are bytes. Throws std::runtime_error when the group is aborted, a connection breaks or a wait takes too
/// long.
class Mesh::Buffer {
 public:
  Buffer();
  Buffer(Mesh& mesh, void* data, size_t bytes);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  void send(int peer, uint64_t tag, size_t offset, size_t bytes);
  /// The whole buffer.
  void receive(int peer, uint64_t tag);
  /// Waits for the oldest of the messages sent, received.
  void wait_sent();
  void wait_received();

 private:
  void check(bool completed) const;

  Mesh* mesh_ = nullptr;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

/// Connects the members of a group, of more than one, pairwise; all must call. Gloo takes whoever comes first to a
/// pair's port for the peer: so ports are told to nobody but the peer, over a connection that both know, and are open
/// only for the moments until it has come. Throws std::runtime_error that names a rank.
std::unique_ptr<Mesh> connect_mesh(const Group& group, const Network& network, Meeting meeting,
                                   std::chrono::milliseconds timeout);

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
