#include "prunex/comm/shm/node_memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

namespace prunex::comm {
namespace {

Range overlap(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

enum class Operation : uint32_t { kBarrier, kBroadcast, kAllReduce, kMaximum, kReduceScatter, kAllGather, kAllToAll };

/// The same for calls that belong together, and hardly for others.
uint32_t word_of(Operation operation, const at::Tensor& tensor) {
  const auto size = static_cast<uint64_t>(tensor.numel()) * 0x9e3779b97f4a7c15;
  return static_cast<uint32_t>(operation) << 28 | static_cast<uint32_t>(tensor.scalar_type()) << 21 |
         static_cast<uint32_t>(size >> 43);
}

class ShmCommunicator final : public Backend {
 public:
  ShmCommunicator(const Group& group, std::shared_ptr<NodeMemory> memory, const Guard& guard)
      : Backend(group, guard), memory_(std::move(memory)), listener_(listen()) {}
  ~ShmCommunicator() override { memory_->leave(); }

  void abort(const std::string& reason) override { memory_->abort(reason); }

 private:
  /// A stretch of a flat tensor that fits into one window.
  struct Window {
    char* data;  // of the tensor's first entry in it
    int64_t element_size;
    Range entries;    // of the tensor
    uint32_t number;  // of the window, for the memory
    uint32_t call;    // the operation, in a word
    int64_t bytes(Range range) const { return range.size() * element_size; }
    int64_t offset(Range range) const { return (range.begin - entries.begin) * element_size; }
  };

  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    const auto add = reduce_function(tensor.scalar_type(), reduce);
    const Operation operation = reduce == Reduce::kMax ? Operation::kMaximum : Operation::kAllReduce;
    for_each_window(operation, tensor, [&](const Window& window) {
      publish(window, window.entries);
      const Range mine = part(window.entries, size(), rank());
      reduce_inputs(window, mine, memory_->output(window.number) + window.offset(mine), add);
      memory_->advance(NodeMemory::kReduced);
      memory_->wait_for_all(NodeMemory::kReduced, memory_->value(NodeMemory::kReduced));
      std::memcpy(window.data, memory_->output(window.number), window.bytes(window.entries));
    });
  }

  void do_broadcast(at::Tensor& tensor, int root) override {
    for_each_window(Operation::kBroadcast, tensor, [&](const Window& window) {
      publish(window, rank() == root ? window.entries : Range{window.entries.begin, window.entries.begin});
      if (rank() != root) {
        std::memcpy(window.data, memory_->input(root, window.number), window.bytes(window.entries));
      }
      memory_->advance(NodeMemory::kReduced);
    });
  }

  void do_barrier() override {
    at::Tensor nothing = at::empty({1}, at::kByte);
    for_each_window(Operation::kBarrier, nothing, [&](const Window& window) {
      publish(window, window.entries);
      memory_->advance(NodeMemory::kReduced);
    });
  }

  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    const auto add = reduce_function(tensor.scalar_type());
    for_each_window(Operation::kReduceScatter, tensor, [&](const Window& window) {
      publish(window, window.entries);
      const Range mine = overlap(parts[static_cast<size_t>(rank())], window.entries);
      reduce_inputs(window, mine, window.data + window.offset(mine), add);
      memory_->advance(NodeMemory::kReduced);
    });
  }

  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    for_each_window(Operation::kAllGather, tensor, [&](const Window& window) {
      publish(window, overlap(parts[static_cast<size_t>(rank())], window.entries));
      for (int peer = 0; peer < size(); ++peer) {
        const Range theirs = overlap(parts[static_cast<size_t>(peer)], window.entries);
        if (peer == rank() || theirs.empty()) continue;
        const int64_t offset = window.offset(theirs);
        std::memcpy(window.data + offset, memory_->input(peer, window.number) + offset, window.bytes(theirs));
      }
      memory_->advance(NodeMemory::kReduced);
    });
  }

  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    const Range mine = parts[static_cast<size_t>(rank())];
    for_each_window(Operation::kAllToAll, input, [&](const Window& window) {
      publish(window, window.entries);
      const Range stretch = overlap(mine, window.entries);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank() || stretch.empty()) continue;
        char* row = static_cast<char*>(output.data_ptr()) + peer * window.bytes(mine);
        std::memcpy(row + window.bytes({mine.begin, stretch.begin}),
                    memory_->input(peer, window.number) + window.offset(stretch), window.bytes(stretch));
      }
      memory_->advance(NodeMemory::kReduced);
    });
  }

  /// Cuts the tensor in windows and keeps the counters: before a window is used again, all ranks have left it.
  void for_each_window(Operation operation, const at::Tensor& tensor, const std::function<void(Window)>& body) {
    const FlatBuffer buffer(tensor);
    const uint32_t call = word_of(operation, tensor);
    const int64_t length = NodeMemory::kWindowBytes / buffer.element_size;
    for (int64_t begin = 0; begin < tensor.numel(); begin += length) {
      const uint32_t number = memory_->value(NodeMemory::kLeft);
      memory_->wait_for_all(NodeMemory::kLeft, number - 1);
      const Range entries{begin, std::min(begin + length, tensor.numel())};
      body({static_cast<char*>(buffer.at(begin)), buffer.element_size, entries, number, call});
      memory_->advance(NodeMemory::kLeft);
    }
  }

  void publish(const Window& window, Range range) {
    const int64_t offset = window.offset(range);
    std::memcpy(memory_->input(rank(), window.number) + offset, window.data + offset, window.bytes(range));
    memory_->announce(window.number, window.call);
    memory_->advance(NodeMemory::kPublished);
    memory_->wait_for_all(NodeMemory::kPublished, memory_->value(NodeMemory::kPublished));
    for (int peer = 0; peer < size(); ++peer) {
      if (memory_->announced(window.number, peer) == window.call) continue;
      throw std::runtime_error(
          fmt::format("rank {} calls another operation, or one of another size or type", world_ranks({peer}).front()));
    }
  }

  /// In the order of ranks.
  void reduce_inputs(const Window& window, Range range, char* out, ReduceFunction reduce) {
    const auto input = [&](int peer) { return memory_->input(peer, window.number) + window.offset(range); };
    if (range.empty()) return;
    reduce(out, input(0), input(1), range.size());
    for (int peer = 2; peer < size(); ++peer) reduce(out, out, input(peer), range.size());
  }

  std::string abort_reason() const override { return memory_->abort_reason(); }

  const std::shared_ptr<NodeMemory> memory_;
  const AbortSwitch::Listener listener_;
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const Group& group, std::shared_ptr<NodeMemory> memory,
                                                    const Guard& guard) {
  return std::make_unique<ShmCommunicator>(group, std::move(memory), guard);
}

}  // namespace prunex::comm
