// Collectives over one group of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "prunex/comm/traffic.h"

namespace prunex::comm {

enum class Reduce { kSum, kMax, kBitOr };

/// A group of ranks. Every public call must be made by all of them in the same order; it checks its arguments, counts
/// traffic and then lets the backend move bytes. A group of one rank returns at once. Tensors are contiguous, on the
/// CPU, of the same shape and type on all ranks. A peer's death or a timeout throws std::runtime_error with the
/// operation and the ranks waited for. Results are bit-identical on all ranks.
class Communicator {
 public:
  Communicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// In place; float, double, int64 or uint8. kBitOr is for uint8. Large tensors travel in buckets of 32 MB.
  void all_reduce(at::Tensor& tensor, Reduce reduce = Reduce::kSum);
  /// In place; any type.
  void broadcast(at::Tensor& tensor, int root = 0);
  /// output: [size(), ...input's shape].
  void all_gather(at::Tensor& output, const at::Tensor& input);
  void barrier();

  const Traffic& traffic() const { return traffic_; }

 private:
  virtual void do_all_reduce(at::Tensor& tensor, Reduce reduce) = 0;
  virtual void do_broadcast(at::Tensor& tensor, int root) = 0;
  virtual void do_all_gather(at::Tensor& output, const at::Tensor& input) = 0;
  virtual void do_barrier() = 0;

  std::string name_;
  int rank_;
  int size_;
  Traffic traffic_;
};

}  // namespace prunex::comm
