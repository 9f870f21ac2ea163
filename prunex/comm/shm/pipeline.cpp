#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "prunex/comm/shm/node_memory.h"

namespace prunex::comm {
namespace {

/// A stretch of the tensor that fits into the shared memory, and how far this rank is with it. Entries count from its
/// beginning.
struct Stretch {
  char* data = nullptr;
  int64_t element_size = 0;
  ReduceFunction add = nullptr;
  int nodes = 1, node = 0;
  std::vector<Range> shards;  // one per rail
  int64_t chunks = 1;         // per block, the same on all rails
  uint32_t number = 0;
  uint32_t published = 0, reduced = 0;  // counters at its beginning
  int64_t combined = 0;                 // pieces that this rail has combined
  std::vector<int64_t> drained;         // pieces copied out, by rail

  int64_t pieces() const { return nodes * chunks; }
  int64_t bytes(Range range) const { return range.size() * element_size; }
  Range piece(size_t rail, int64_t block, int64_t chunk) const {
    return ring_piece(shards[rail], nodes, chunks, block, chunk);
  }
};

class SharedPipeline final : public Pipeline {
 public:
  SharedPipeline(const Layout& layout, Communicator& node, RingCommunicator& rail, std::shared_ptr<NodeMemory> memory)
      : layout_(layout), node_(node), rail_(rail), memory_(std::move(memory)) {}

  void all_reduce(at::Tensor& tensor) override {
    TORCH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() &&
                    (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble),
                "[comm] a pipelined all-reduce of ", tensor.scalar_type(), " of shape ", tensor.sizes());
    const FlatBuffer buffer(tensor);
    const int64_t length = NodeMemory::kWindowBytes / buffer.element_size;
    for (int64_t begin = 0; begin < tensor.numel(); begin += length) {
      const int64_t entries = std::min(length, tensor.numel() - begin);
      Stretch window{.data = static_cast<char*>(buffer.at(begin)),
                     .element_size = buffer.element_size,
                     .add = reduce_function(tensor.scalar_type()),
                     .nodes = layout_.nodes(),
                     .node = layout_.node(),
                     .shards = parts({0, entries}, layout_.rails())};
      for (const Range& shard : window.shards) {
        window.chunks = std::max(window.chunks, ring_chunks(shard, window.nodes, buffer.element_size));
      }
      const int64_t mine = layout_.on_rail() ? window.shards[static_cast<size_t>(layout_.local_rank())].size() : 0;
      const Volume volume = {.payload = 2 * window.bytes({0, entries}),
                             .sent = (entries + (node_.size() - 2) * mine) * buffer.element_size};
      node_.run("all_reduce", volume, [&] { reduce(window); });
    }
  }

 private:
  void reduce(Stretch& window) {
    window.number = memory_->value(NodeMemory::kLeft);
    window.published = memory_->value(NodeMemory::kPublished);
    window.reduced = memory_->value(NodeMemory::kReduced);
    window.drained.resize(window.shards.size());
    memory_->wait_for_all(NodeMemory::kLeft, window.number - 1);
    if (layout_.on_rail()) {
      run_rail(window);
    } else {
      for (int64_t j = 0; j < window.nodes; ++j) {
        for (int64_t chunk = 0; chunk < window.chunks; ++chunk) copy_in(window, window.node - j, chunk);
      }
      memory_->advance(NodeMemory::kReduced, static_cast<uint32_t>(window.pieces()));
    }
    drain(window, true);
    memory_->advance(NodeMemory::kLeft);
  }

  void run_rail(Stretch& window) {
    RingHooks hooks;
    hooks.combine = [&](Range piece, const void* received) {
      const int64_t order = window.combined / window.chunks;  // of the block
      if (order == 0) copy_in(window, window.node, window.combined % window.chunks);
      combine(window, piece, received);
    };
    hooks.publish = [&](Range) {
      memory_->advance(NodeMemory::kReduced);
      drain(window, false);
    };
    hooks.first_block_sent = [&] {
      for (int64_t j = 1; j < window.nodes; ++j) {
        for (int64_t chunk = 0; chunk < window.chunks; ++chunk) copy_in(window, window.node - j, chunk);
      }
    };
    rail_.all_reduce_pieces({memory_->output(window.number), window.element_size},
                            window.shards[static_cast<size_t>(layout_.local_rank())], window.chunks, hooks);
  }

  /// This rank's values of a piece of every shard, for the rails to add up.
  void copy_in(const Stretch& window, int64_t block, int64_t chunk) {
    char* input = memory_->input(memory_->rank(), window.number);
    for (size_t rail = 0; rail < window.shards.size(); ++rail) {
      const Range piece = window.piece(rail, block, chunk);
      const int64_t offset = piece.begin * window.element_size;
      std::memcpy(input + offset, window.data + offset, static_cast<size_t>(window.bytes(piece)));
    }
    memory_->advance(NodeMemory::kPublished);
  }

  /// In the order of ranks, what came over the wire first.
  void combine(Stretch& window, Range piece, const void* received) {
    ++window.combined;
    memory_->wait_for_all(NodeMemory::kPublished, window.published + static_cast<uint32_t>(window.combined));
    const auto input = [&](int rank) {
      return memory_->input(rank, window.number) + piece.begin * window.element_size;
    };
    char* out = memory_->output(window.number) + piece.begin * window.element_size;
    int next = 0;
    if (received != nullptr) {
      window.add(out, received, input(next++), piece.size());
    } else if (memory_->size() == 1) {
      std::memcpy(out, input(next++), static_cast<size_t>(window.bytes(piece)));
    } else {
      window.add(out, input(0), input(1), piece.size());
      next = 2;
    }
    for (; next < memory_->size(); ++next) window.add(out, out, input(next), piece.size());
  }

  /// Copies out what the rails of this node have finished, all of it if `wait`.
  void drain(Stretch& window, bool wait) {
    const char* output = memory_->output(window.number);
    for (size_t rail = 0; rail < window.shards.size(); ++rail) {
      const int local_rank = static_cast<int>(rail);
      for (int64_t& done = window.drained[rail]; done < window.pieces(); ++done) {
        const uint32_t target = window.reduced + static_cast<uint32_t>(done + 1);
        if (wait) {
          memory_->wait(NodeMemory::kReduced, local_rank, target);
        } else if (!memory_->reached(NodeMemory::kReduced, local_rank, target)) {
          break;
        }
        const Range piece = window.piece(rail, window.node + 1 - done / window.chunks, done % window.chunks);
        const int64_t offset = piece.begin * window.element_size;
        std::memcpy(window.data + offset, output + offset, static_cast<size_t>(window.bytes(piece)));
      }
    }
  }

  const Layout layout_;
  Communicator& node_;
  RingCommunicator& rail_;
  const std::shared_ptr<NodeMemory> memory_;
};

}  // namespace

std::unique_ptr<Pipeline> make_pipeline(const Layout& layout, Communicator& node, RingCommunicator& rail,
                                        std::shared_ptr<NodeMemory> memory) {
  return std::make_unique<SharedPipeline>(layout, node, rail, std::move(memory));
}

}  // namespace prunex::comm
