// Memory that the ranks of one node share, with counters to wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace prunex::comm {

/// A POSIX shared-memory segment: two input windows per rank, two output windows, and three counters per rank. Windows
/// are used in turn, so that a rank may fill the next one while others still read the last. Every operation advances
/// all counters of all ranks by the same amounts; they wrap around.
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

  /// The first rank of a node makes the segment, the others open it, then it is unlink()ed. Throws std::runtime_error
  /// if shared memory is not to be had: there is none, it is too small, or this process may not.
  static std::unique_ptr<NodeMemory> create(const std::string& name, const Seat& seat);
  static std::unique_ptr<NodeMemory> open(const std::string& name, const Seat& seat);
  static void unlink(const std::string& name);

  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int rank() const { return seat_.rank; }
  int size() const { return seat_.ranks; }
  char* input(int rank, uint32_t window) const;
  char* output(uint32_t window) const;

  /// How long a wait may last.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const { return timeout_; }

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

  NodeMemory(int file, const Seat& seat);
  std::atomic<uint32_t>& cell(Counter counter, int rank) const;

  Seat seat_;
  char* base_ = nullptr;
  std::chrono::milliseconds timeout_ = std::chrono::minutes(10);
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

}  // namespace prunex::comm
