// What a transport makes groups from, whatever carries the bytes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/cost_model.h"
#include "prunex/comm/layout.h"

namespace prunex::comm {

struct Timeouts {
  std::chrono::milliseconds connect;
  std::chrono::milliseconds operation;
};

/// Ends everything that waits for other ranks, at once: whoever does leaves an action here that ends its waiting. Safe
/// to use from several threads.
class AbortSwitch {
 public:
  using Action = std::function<void(const std::string& reason)>;

  /// Keeps an action for as long as it lives; the switch must outlive it.
  using Listener = std::shared_ptr<AbortSwitch>;

  /// The action is called once, from any thread, at once if the switch is on already; never after the listener's end.
  /// It must neither wait nor use the switch.
  [[nodiscard]] Listener listen(Action action);

  /// Runs all actions. Only the first call counts.
  void abort(const std::string& reason);

  /// Why it is on, having waited so long for it; else empty.
  std::string reason(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable on_;
  std::string reason_;
  int64_t next_key_ = 0;
  std::map<int64_t, Action> actions_;
};

/// Who ends this rank's waits when another one is lost.
struct Guard {
  std::shared_ptr<AbortSwitch> abort_switch;
  /// How long to wait, when a connection breaks, for the switch to tell why; 0 if nobody will.
  std::chrono::milliseconds patience{0};
  /// Called some ten times a second by those who wait by asking; ends the wait by an exception. May be null.
  std::function<void()> on_wait = nullptr;
};

/// A wait that took too long; the text names the ranks waited for.
class TimedOut : public std::runtime_error {
 public:
  TimedOut(std::chrono::milliseconds timeout, const std::vector<int>& world_ranks);
};

/// A group over one transport. An operation that fails says why: what the abort switch knows, else what the transport
/// saw. Its end is the end of the group, so that no other rank waits for this one.
class Backend : public Communicator {
 public:
  Backend(const Group& group, const Guard& guard);

 protected:
  /// abort(), from now on, when the switch says so. To be kept in the last member of the implementation: no call comes
  /// once the others are destroyed.
  [[nodiscard]] AbortSwitch::Listener listen();
  std::vector<int> world_ranks(std::vector<int> ranks) const;
  /// Asks until it is so, the first moments without a rest. Throws std::runtime_error with abort_reason(), and TimedOut
  /// once `deadline` has passed, which is `limit` after the beginning.
  void wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit,
                  std::chrono::steady_clock::time_point deadline) const;
  bool asks_while_waiting() const { return static_cast<bool>(guard_.on_wait); }
  /// Of this group, by world rank, without this one.
  std::vector<int> others() const;
  /// Empty, or why abort() was called.
  virtual std::string abort_reason() const = 0;
  /// What the transport's error means; called before the group is aborted.
  virtual std::string explain(const std::string& error) { return error; }
  /// What is to be said of an operation that failed.
  std::string describe(const char* operation, const std::exception& error);

 private:
  [[noreturn]] void fail(const char* operation, const std::exception& error) final;

  const std::vector<int> members_;
  const Guard guard_;
};

/// A flat buffer of any type.
struct FlatBuffer {
  void* data = nullptr;
  int64_t element_size = 1;

  explicit FlatBuffer(const at::Tensor& tensor);
  FlatBuffer(void* data, int64_t element_size) : data(data), element_size(element_size) {}

  void* at(int64_t entry) const { return static_cast<char*>(data) + entry * element_size; }
  size_t bytes(Range range) const { return static_cast<size_t>(range.size() * element_size); }
};

/// What a rank does with a piece of the buffer. Pieces are at most kChunkBytes long.
struct RingHooks {
  /// piece <- this rank's values, plus the received ones unless null.
  std::function<void(Range piece, const void* received)> combine;
  /// The piece holds the result.
  std::function<void(Range piece)> publish = [](Range) {};
  /// The first block is on its way: time for work that later blocks need.
  std::function<void()> first_block_sent = [] {};
};

/// A group whose ring can be fed and read piece by piece.
class RingCommunicator : public Backend {
 public:
  using Backend::Backend;

  /// Runs the hooks for `range` of the buffer, in blocks of `chunks` pieces, the same on all ranks. Every rank sends
  /// 2S - |block r+1| - |block r+2| bytes (all together 2(n-1)S, the least possible). Each block is added up in the
  /// same order of ranks everywhere and then copied: results are bit-identical. A group of one combines and publishes
  /// its pieces.
  virtual void all_reduce_pieces(FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) = 0;
};

/// The part of `range` that is block b of n, and its pieces; hooks see them in this order on every rank r: blocks r,
/// r-1, … r-n+1 are combined, blocks r+1, r, … r-n+2 published.
int64_t ring_chunks(Range range, int64_t ranks, int64_t element_size);
Range ring_piece(Range range, int64_t ranks, int64_t chunks, int64_t block, int64_t chunk);

/// out = a op b, entry by entry; out may be a.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, int64_t count);
ReduceFunction reduce_function(c10::ScalarType type, Reduce reduce = Reduce::kSum);

}  // namespace prunex::comm
