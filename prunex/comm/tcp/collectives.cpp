#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "prunex/comm/tcp/tcp_communicator.h"

namespace prunex::comm {
namespace {

std::vector<int> sorted(std::vector<int> ranks, int size) {
  for (int& rank : ranks) rank = (rank + size) % size;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

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
    for (int64_t step = 0; step < steps_; ++step) {
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) post(step, chunk);
    }
    out_ = Mesh::Buffer(mesh_, buffer_.data, buffer_.bytes({0, range_.end}));
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      hooks_.combine(piece(mesh_.rank(), chunk), nullptr);
      send(0, chunk);
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
    scratch_ = std::make_unique_for_overwrite<char[]>(buffer_.bytes({0, (ranks_ - 1) * longest_block_}));
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
    buffer = Mesh::Buffer(mesh_, destination(step, expected), buffer_.bytes(expected));
    buffer.receive(neighbour(-1), tag(step, chunk));
  }

  void send(int64_t step, int64_t chunk) {
    const Range ready = piece(block_sent(step), chunk);
    if (ready.empty()) return;
    out_.send(neighbour(1), tag(step, chunk), buffer_.bytes({0, ready.begin}), buffer_.bytes(ready));
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

/// Sends a range of the buffer to every rank that wants it.
class Sender {
 public:
  Sender(Mesh& mesh, FlatBuffer buffer, int64_t count)
      : buffer_(buffer), out_(mesh, buffer.data, buffer.bytes({0, count})) {}

  void send(int peer, uint64_t tag, Range range) {
    if (range.empty()) return;
    out_.send(peer, tag, buffer_.bytes({0, range.begin}), buffer_.bytes(range));
    ++sent_;
  }
  void wait() {
    for (; sent_ > 0; --sent_) out_.wait_sent();
  }

 private:
  FlatBuffer buffer_;
  Mesh::Buffer out_;
  int sent_ = 0;
};

/// Where a message goes to.
struct Piece {
  void* data;
  size_t bytes;
};

/// Whose entries are sent: the first `count` of the buffer.
struct Source {
  Mesh& mesh;
  FlatBuffer buffer;
  int64_t count;
};

/// Every rank sends every other one the range sent(peer), and receives at to(peer); arrived() is called when all of
/// that is there.
template <class Sent, class To>
void exchange(
    const Source& source, const Sent& sent, const To& to, const std::function<void()>& arrived = [] {}) {
  Mesh& mesh = source.mesh;
  const uint64_t tag = mesh.new_tags(1);
  const auto peers = all_peers(mesh.rank(), mesh.size());
  std::vector<Mesh::Buffer> received(mesh.size());
  for (const int peer : peers) {
    const Piece piece = to(peer);
    if (piece.bytes == 0) continue;
    received[peer] = Mesh::Buffer(mesh, piece.data, piece.bytes);
    received[peer].receive(peer, tag);
  }
  Sender out(mesh, source.buffer, source.count);
  for (int distance = 1; distance < mesh.size(); ++distance) {
    const int peer = (mesh.rank() + distance) % mesh.size();
    out.send(peer, tag, sent(peer));
  }
  for (const int peer : peers) {
    if (to(peer).bytes > 0) received[peer].wait_received();
  }
  arrived();
  out.wait();
}

}  // namespace

void ring_all_reduce(Mesh& mesh, FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) {
  Ring(mesh, buffer, range, chunks, hooks).run();
}

void all_reduce(Mesh& mesh, FlatBuffer buffer, int64_t count, ReduceFunction reduce) {
  RingHooks hooks;
  hooks.combine = [&](Range piece, const void* received) {
    if (received != nullptr) reduce(buffer.at(piece.begin), received, buffer.at(piece.begin), piece.size());
  };
  const Range whole{0, count};
  ring_all_reduce(mesh, buffer, whole, ring_chunks(whole, mesh.size(), buffer.element_size), hooks);
}

void broadcast(Mesh& mesh, FlatBuffer buffer, int64_t count, int root) {
  const Tree tree = binomial_tree(root, {mesh.rank(), mesh.size()});
  const uint64_t tag = mesh.new_tags(1);
  if (tree.parent >= 0) {
    Mesh::Buffer in(mesh, buffer.data, buffer.bytes({0, count}));
    in.receive(tree.parent, tag);
    in.wait_received();
  }
  Sender out(mesh, buffer, count);
  for (const int child : tree.children) out.send(child, tag, {0, count});
  out.wait();
}

void reduce_scatter(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts, ReduceFunction reduce) {
  const Range mine = parts[mesh.rank()];
  const auto scratch = std::make_unique_for_overwrite<char[]>(buffer.bytes(mine) * mesh.size());
  const auto input = [&](int rank) { return scratch.get() + buffer.bytes(mine) * rank; };
  const auto add_up = [&] {
    if (mine.empty()) return;
    std::memcpy(input(mesh.rank()), buffer.at(mine.begin), buffer.bytes(mine));
    reduce(buffer.at(mine.begin), input(0), input(1), mine.size());
    for (int rank = 2; rank < mesh.size(); ++rank) {
      reduce(buffer.at(mine.begin), buffer.at(mine.begin), input(rank), mine.size());
    }
  };
  exchange(
      {mesh, buffer, parts.back().end}, [&](int peer) { return parts[peer]; },
      [&](int peer) {
        return Piece{input(peer), buffer.bytes(mine)};
      },
      add_up);
}

void all_gather(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts) {
  exchange(
      {mesh, buffer, parts.back().end}, [&](int) { return parts[mesh.rank()]; },
      [&](int peer) {
        return Piece{buffer.at(parts[peer].begin), buffer.bytes(parts[peer])};
      });
}

void all_to_all(Mesh& mesh, FlatBuffer output, FlatBuffer input, const std::vector<Range>& parts) {
  const int64_t length = parts[mesh.rank()].size();
  exchange(
      {mesh, input, parts.back().end}, [&](int peer) { return parts[peer]; },
      [&](int peer) {
        return Piece{output.at(peer * length), output.bytes({0, length})};
      });
}

void barrier(Mesh& mesh) {
  for (int step = 1; step < mesh.size(); step *= 2) {
    const uint64_t tag = mesh.new_tags(1);
    char byte = 0;
    Mesh::Buffer in(mesh, &byte, 1);
    in.receive((mesh.rank() - step + mesh.size()) % mesh.size(), tag);
    char hello = 0;
    Mesh::Buffer out(mesh, &hello, 1);
    out.send((mesh.rank() + step) % mesh.size(), tag, 0, 1);
    in.wait_received();
    out.wait_sent();
  }
}

std::vector<int> ring_peers(int rank, int size) {
  return sorted({rank + 1, rank - 1}, size);
}

std::vector<int> tree_peers(int rank, int size, int root) {
  const Tree tree = binomial_tree(root, {rank, size});
  std::vector<int> peers = tree.children;
  if (tree.parent >= 0) peers.push_back(tree.parent);
  return sorted(peers, size);
}

std::vector<int> barrier_peers(int rank, int size) {
  std::vector<int> peers;
  for (int step = 1; step < size; step *= 2) peers.push_back(rank - step);
  return sorted(peers, size);
}

std::vector<int> all_peers(int rank, int size) {
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) peers.push_back(peer);
  }
  return peers;
}

}  // namespace prunex::comm
