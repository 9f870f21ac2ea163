// The messages of a group's ranks, over one connection per pair.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/meet/link.h"

namespace prunex::comm {

/// All pairs of a group are connected. Messages between two ranks arrive in the order in which they were sent, and have
/// to be waited for in that order: a header says which one it is and how long, and one that was not expected breaks the
/// connection. Nothing is read before there is a place for it. Bytes move while somebody waits, so that one thread is
/// enough; only abort() may come from another one.
class Mesh {
 public:
  class Buffer;
  /// A wait that took too long.
  struct Late : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  /// `links`: by rank, to all others. A wait for one message takes `timeout` at most.
  Mesh(int rank, std::map<int, Link> links, std::chrono::milliseconds timeout);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(lanes_.size()) + 1; }

  /// `count` numbers that no message of this group has had. All ranks ask in the same order for as many.
  uint64_t new_tags(uint64_t count);

  /// Ends all waits, present and future, with an exception that says `reason`, and closes the connections, so that the
  /// peers' waits end too. From any thread; only the first call counts.
  void abort(const std::string& reason);
  /// Empty, or why abort() was called.
  std::string abort_reason() const;

  /// The ranks to which the connection is broken.
  std::vector<int> lost_ranks() const;

 private:
  struct Message;
  struct Lane;

  Lane& lane(int peer);
  uint64_t bytes_passed() const;
  /// Until one message less is pending.
  void wait(const int64_t& pending);
  bool move_all();
  void poll_until(Deadline deadline);
  void forget(const Buffer& buffer);

  const int rank_;
  const std::chrono::milliseconds timeout_;
  const Socket wake_;
  std::map<int, Lane> lanes_;
  uint64_t next_tag_ = 0;
  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

/// Memory that messages are sent from or received into. It must outlive its messages: wait for all of them. Offsets and
/// lengths are bytes. Throws std::runtime_error when the group is aborted or a connection breaks, and Mesh::Late.
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
  friend class Mesh;
  /// Messages that are under way. Where it lies stays the same when the buffer moves.
  struct Pending {
    int64_t sent = 0, received = 0;
  };

  Mesh* mesh_ = nullptr;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  std::unique_ptr<Pending> pending_;
};

}  // namespace prunex::comm
