// Collectives over one group of ranks, and how a buffer is divided among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/traffic.h"

namespace prunex::comm {

class Journal;

/// Consecutive entries of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

/// The i-th of n nearly equal parts. Long ranges are cut at multiples of 16 entries from their beginning.
Range part(Range whole, int64_t n, int64_t i);

/// All n parts.
std::vector<Range> parts(Range whole, int64_t n);

/// A view of these entries of a one-dimensional tensor.
at::Tensor slice(const at::Tensor& flat, Range range);

enum class Reduce { kSum, kMax };

/// Large tensors travel in buckets of this size.
inline constexpr int64_t kBucketBytes = 32 << 20;

/// In the text of every exception that only reports that another rank has gone.
inline constexpr const char* kLostRank = "lost rank";

/// A group of ranks. Every public call must be made by all of them in the same order; it checks its arguments, counts
/// traffic and then lets the backend move bytes. A group of one rank, or an empty tensor, returns at once. Tensors are
/// on a device that it serves, of the same shape, type and memory layout on all ranks; data is written past autograd. A
/// peer's death or a timeout throws std::runtime_error with the operation and the ranks waited for; after that the
/// group is unusable. Results are bit-identical on all ranks. One thread at a time.
class Communicator {
 public:
  Communicator(std::string name, int rank, int size)
      : name_(std::move(name)), rank_(rank), size_(size), node_of_(static_cast<size_t>(size)) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Whether tensors there may be handed in.
  virtual bool serves(const c10::Device& device) const { return size_ == 1 || device.is_cpu(); }

  /// In place; float, double, int64 or uint8, in any dense layout.
  void all_reduce(at::Tensor& tensor, Reduce reduce = Reduce::kSum);
  /// In place; any type, in any dense layout.
  void broadcast(at::Tensor& tensor, int root = 0);
  /// output: [size(), ...input's shape], input's type; both contiguous. Any type.
  void all_gather(at::Tensor& output, const at::Tensor& input);
  void barrier();

  /// Of a one-dimensional, contiguous tensor that is divided into one part per rank, in their order (empty ones too).
  /// In place: my part <- its sum over ranks, in the order of ranks; the others keep what they were.
  void reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts);
  /// In place: every part <- what its rank has there.
  void all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts);
  /// output[i] <- my part of rank i's input. input: one-dimensional, divided like the others'; output: [size(), my
  /// part's entries], input's type; both contiguous. Any type.
  void all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts);

  /// Ends every call that waits, present or future, with an exception that says `reason`; closes the connections, so
  /// that the other ranks' calls end, too. The only call that any thread may make at any time.
  virtual void abort(const std::string& reason) = 0;

  const Traffic& traffic() const { return traffic_; }
  /// Runs an operation of all ranks over this group's links: counts it and notes it in the journal. If it throws, the
  /// group is broken, and refuses every one after it.
  void run(const char* operation, const Volume& volume, const std::function<void()>& body);

  /// Which node each member stands on, for the counts. Unless told, all members stand on one.
  void stand_on(std::vector<int> nodes);
  const std::vector<int>& nodes() const { return node_of_; }
  /// The counts of a sum over all ranks by a ring in their order.
  Volume ring_volume(int64_t elements, int64_t element_size) const;

  /// Writes the operations to come to the journal. A group of one does not: it never waits.
  void record_in(std::shared_ptr<Journal> journal);

 protected:
  Place place() const { return {rank_, size_}; }

 private:
  // The size is at least two, tensors hold at least one element and one run of memory; all but all_to_all's output are
  // one-dimensional.
  virtual void do_all_reduce(at::Tensor& tensor, Reduce reduce) = 0;
  virtual void do_broadcast(at::Tensor& tensor, int root) = 0;
  virtual void do_barrier() = 0;
  virtual void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) = 0;
  virtual void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) = 0;
  virtual void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) = 0;

  /// Called with the exception that broke the group, before it goes on: may throw one that says more.
  virtual void fail(const char* operation, const std::exception& error);

  void check_parts(const at::Tensor& tensor, const std::vector<Range>& parts) const;
  int64_t if_elsewhere(int peer, int64_t bytes) const { return node_of_[peer] == node_of_[rank_] ? 0 : bytes; }
  Volume broadcast_volume(int64_t bytes, int root) const;
  Volume gather_volume(int64_t payload, int64_t mine) const;
  Volume scatter_volume(int64_t payload, const std::vector<Range>& parts, int64_t element_size) const;

  std::string name_;
  int rank_;
  int size_;
  std::vector<int> node_of_;  // of every member
  int nodes_ = 1;
  Traffic traffic_;
  bool broken_ = false;
  std::shared_ptr<Journal> journal_;  // null: nothing is recorded
};

/// Rank 0's text, on every rank. Collective.
std::string broadcast_text(Communicator& group, std::string text);

/// The texts of all ranks, in their order. Collective.
std::vector<std::string> gather_texts(Communicator& group, const std::string& text);

/// The first member whose number is not the first one's. Collective.
std::optional<int> first_other(int64_t number, Communicator& group);

/// A group of one rank: its operations return at once.
std::unique_ptr<Communicator> make_solo(std::string name);

/// A second name for a group, with counts of its own. Borrows the group and its connections: calls to both must keep
/// one order on all ranks. The group counts them too.
std::unique_ptr<Communicator> make_view(std::string name, Communicator& group);

}  // namespace prunex::comm
