#include "prunex/comm/gloo/ring.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace prunex::comm {
namespace {

class Ring {
 public:
  Ring(Mesh& mesh, FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks)
      : mesh_(mesh),
        buffer_(buffer),
        range_(range),
        hooks_(hooks),
        ranks_(mesh.size()),
        steps_(2 * (ranks_ - 1)),
        chunks_(chunks),
        tags_(mesh.new_tags(static_cast<uint64_t>(steps_ * chunks_))) {}

  void run() {
    make_room();
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) post(0, chunk);
    out_ = Mesh::Buffer(mesh_, buffer_.data, static_cast<size_t>(range_.end * buffer_.element_size));
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      hooks_.combine(piece(mesh_.rank(), chunk), nullptr);
      send(0, chunk);
    }
    // Posted only now: announcing all receives before the first send costs a tenth of the bandwidth.
    for (int64_t step = 1; step < steps_; ++step) {
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) post(step, chunk);
    }
    hooks_.first_block_sent();
    for (int64_t step = 0; step < steps_; ++step) {
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) pass_on(step, chunk);
    }
    for (; sent_ > 0; --sent_) out_.wait_sent();
  }

 private:
  // In step s rank r sends block r - s, which its right neighbour adds to its own or, in the second half, copies.
  Range piece(int64_t block, int64_t chunk) const { return ring_piece(range_, ranks_, chunks_, block, chunk); }
  int64_t block_sent(int64_t step) const { return mesh_.rank() - step; }
  int64_t block_received(int64_t step) const { return mesh_.rank() - step - 1; }
  bool adds(int64_t step) const { return step < ranks_ - 1; }
  uint64_t tag(int64_t step, int64_t chunk) const { return tags_ + static_cast<uint64_t>(step * chunks_ + chunk); }
  int neighbour(int distance) const { return static_cast<int>((mesh_.rank() + distance + ranks_) % ranks_); }

  void make_room() {
    for (int64_t block = 0; block < ranks_; ++block) {
      longest_block_ = std::max(longest_block_, part(range_, ranks_, block).size());
    }
    scratch_ = std::make_unique_for_overwrite<char[]>(
        static_cast<size_t>((ranks_ - 1) * longest_block_ * buffer_.element_size));
    received_.resize(static_cast<size_t>(steps_ * chunks_));
  }

  Mesh::Buffer& received(int64_t step, int64_t chunk) { return received_[static_cast<size_t>(step * chunks_ + chunk)]; }

  void* destination(int64_t step, Range piece) const {
    if (!adds(step)) return buffer_.at(piece.begin);
    const auto block = part(range_, ranks_, (block_received(step) + 2 * ranks_) % ranks_);
    return scratch_.get() + (step * longest_block_ + piece.begin - block.begin) * buffer_.element_size;
  }

  void post(int64_t step, int64_t chunk) {
    const Range expected = piece(block_received(step), chunk);
    if (expected.empty()) return;
    auto& buffer = received(step, chunk);
    buffer =
        Mesh::Buffer(mesh_, destination(step, expected), static_cast<size_t>(expected.size() * buffer_.element_size));
    buffer.receive(neighbour(-1), tag(step, chunk));
  }

  void send(int64_t step, int64_t chunk) {
    const Range ready = piece(block_sent(step), chunk);
    if (ready.empty()) return;
    out_.send(neighbour(1), tag(step, chunk), static_cast<size_t>(ready.begin * buffer_.element_size),
              static_cast<size_t>(ready.size() * buffer_.element_size));
    ++sent_;
  }

  void pass_on(int64_t step, int64_t chunk) {
    const Range arrived = piece(block_received(step), chunk);
    if (!arrived.empty()) received(step, chunk).wait_received();
    if (adds(step)) hooks_.combine(arrived, arrived.empty() ? nullptr : destination(step, arrived));
    if (step + 1 < steps_) send(step + 1, chunk);
    if (step >= ranks_ - 2) hooks_.publish(arrived);
  }

  Mesh& mesh_;
  FlatBuffer buffer_;
  Range range_;
  const RingHooks& hooks_;
  int64_t ranks_, steps_, chunks_;
  uint64_t tags_;
  int64_t longest_block_ = 0;
  std::unique_ptr<char[]> scratch_;
  std::vector<Mesh::Buffer> received_;  // by step and chunk
  Mesh::Buffer out_;
  int64_t sent_ = 0;
};

}  // namespace

int64_t ring_chunks(Range range, int64_t ranks, int64_t element_size) {
  const int64_t block = (range.size() + ranks - 1) / ranks * element_size;
  return std::max<int64_t>(1, (block + kChunkBytes - 1) / kChunkBytes);
}

Range ring_piece(Range range, int64_t ranks, int64_t chunks, int64_t block, int64_t chunk) {
  return part(part(range, ranks, (block % ranks + ranks) % ranks), chunks, chunk);
}

void ring_all_reduce(Mesh& mesh, FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) {
  Ring(mesh, buffer, range, chunks, hooks).run();
}

}  // namespace prunex::comm
