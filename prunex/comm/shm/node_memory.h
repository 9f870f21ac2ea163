// Memory that the ranks of one node share, with counters to wait for, and groups over it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "prunex/comm/backend.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/socket.h"

namespace prunex::comm {

/// Memory without a name in any file system, so that nothing of it can be left behind: two input windows per rank, two
/// output windows, and three counters per rank. Windows are used in turn, so that a rank may fill the next one while
/// others still read the last. Every operation advances all counters of all ranks by the same amounts; they wrap
/// around.
class NodeMemory {
 public:
  static constexpr int64_t kWindowBytes = 8 << 20;

  enum Counter { kPublished, kReduced, kLeft };

  /// One rank of a node and its world ranks: first_rank, first_rank + 1, …
  struct Seat {
    int rank = 0;
    int ranks = 1;
    int first_rank = 0;
  };

  /// The first rank of a node makes the memory; the others open it by its ticket, for as long as the first one keeps it
  /// open. A ticket is checked before what it names is touched. Throws std::runtime_error if shared memory is not to be
  /// had: there is no room, or this process may not open the other's.
  static std::unique_ptr<NodeMemory> create(const Seat& seat);
  static std::unique_ptr<NodeMemory> open(const std::string& ticket, const Seat& seat);
  /// Of the memory that this rank made: "process descriptor number".
  const std::string& ticket() const { return ticket_; }
  /// All have opened it.
  void close_to_others() { file_.close(); }

  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int rank() const { return seat_.rank; }
  int size() const { return seat_.ranks; }
  char* input(int rank, uint32_t window) const;
  char* output(uint32_t window) const;

  /// What this rank is about to do with a window, in a word; to be read once it has advanced kPublished, until it has
  /// left the window.
  void announce(uint32_t window, uint32_t call);
  uint32_t announced(uint32_t window, int rank) const;

  /// How long a wait may last.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Of this rank.
  void advance(Counter counter, uint32_t by = 1);
  uint32_t value(Counter counter) const;
  bool reached(Counter counter, int rank, uint32_t value) const;
  /// Throws std::runtime_error, which names a rank, when the wait takes too long or another rank has given up, and with
  /// abort()'s reason.
  void wait(Counter counter, int rank, uint32_t value) const;
  void wait_for_all(Counter counter, uint32_t value) const;

  /// Ends all waits of this node's ranks, present and future, those of this process with `reason`. From any thread.
  void abort(const std::string& reason);
  std::string abort_reason() const;
  /// This rank takes no part any more: ends the waits of the others.
  void leave();

 private:
  struct Cell;
  struct Control;

  NodeMemory(Socket file, const Seat& seat);
  std::atomic<uint32_t>& cell(int row, int rank) const;

  Seat seat_;
  Socket file_;
  std::string ticket_;
  char* base_ = nullptr;
  std::chrono::milliseconds timeout_ = std::chrono::minutes(10);
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

/// Where the ranks of a node meet in shared memory, or agree to do without.
struct SharedMemory {
  std::shared_ptr<NodeMemory> memory;  ///< null on all ranks of the node if one of them could not have it
  std::string problem;                 ///< why
};

/// All ranks of the node must call. `timeout`: how long a wait may last.
SharedMemory share_memory(const Layout& layout, const Meeting& meeting, std::chrono::milliseconds timeout);

// Groups over that memory.

/// The memory may serve other operations too, one after the other.
std::unique_ptr<Communicator> make_shm_communicator(const Group& group, std::shared_ptr<NodeMemory> memory,
                                                    const Guard& guard);

/// Every rail runs a ring over its shard; chunk by chunk it adds up what the ranks of its node have put into their
/// memory, and leaves the results there. Borrows the groups of this rank, of which `node` is over the same memory.
std::unique_ptr<Pipeline> make_pipeline(const Layout& layout, Communicator& node, RingCommunicator& rail,
                                        std::shared_ptr<NodeMemory> memory);

}  // namespace prunex::comm
