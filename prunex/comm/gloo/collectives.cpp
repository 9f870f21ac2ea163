#include "prunex/comm/gloo/collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "prunex/comm/tree.h"

namespace prunex::comm {
namespace {

size_t bytes_of(FlatBuffer buffer, Range range) {
  return static_cast<size_t>(range.size() * buffer.element_size);
}

std::vector<int> sorted(std::vector<int> ranks, int size) {
  for (int& rank : ranks) rank = (rank + size) % size;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// Sends a range of the buffer to every rank that wants it.
class Sender {
 public:
  Sender(Mesh& mesh, FlatBuffer buffer, int64_t count)
      : buffer_(buffer), out_(mesh, buffer.data, bytes_of(buffer, {0, count})) {}

  void send(int peer, uint64_t tag, Range range) {
    if (range.empty()) return;
    out_.send(peer, tag, bytes_of(buffer_, {0, range.begin}), bytes_of(buffer_, range));
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

}  // namespace

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
    Mesh::Buffer in(mesh, buffer.data, bytes_of(buffer, {0, count}));
    in.receive(tree.parent, tag);
    in.wait_received();
  }
  Sender out(mesh, buffer, count);
  for (const int child : tree.children) out.send(child, tag, {0, count});
  out.wait();
}

void reduce_scatter(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts, ReduceFunction reduce) {
  const uint64_t tag = mesh.new_tags(1);
  const Range mine = parts[mesh.rank()];
  const auto scratch = std::make_unique_for_overwrite<char[]>(bytes_of(buffer, mine) * mesh.size());
  const auto input = [&](int rank) { return scratch.get() + bytes_of(buffer, mine) * rank; };
  std::vector<Mesh::Buffer> received(mesh.size());
  for (const int peer : all_peers(mesh.rank(), mesh.size())) {
    if (mine.empty()) break;
    received[peer] = Mesh::Buffer(mesh, input(peer), bytes_of(buffer, mine));
    received[peer].receive(peer, tag);
  }
  Sender out(mesh, buffer, parts.back().end);
  for (int distance = 1; distance < mesh.size(); ++distance) {
    const int peer = (mesh.rank() + distance) % mesh.size();
    out.send(peer, tag, parts[peer]);
  }
  if (!mine.empty()) {
    std::memcpy(input(mesh.rank()), buffer.at(mine.begin), bytes_of(buffer, mine));
    for (const int peer : all_peers(mesh.rank(), mesh.size())) received[peer].wait_received();
    reduce(buffer.at(mine.begin), input(0), input(1), mine.size());
    for (int rank = 2; rank < mesh.size(); ++rank) {
      reduce(buffer.at(mine.begin), buffer.at(mine.begin), input(rank), mine.size());
    }
  }
  out.wait();
}

void all_gather(Mesh& mesh, FlatBuffer buffer, const std::vector<Range>& parts) {
  const uint64_t tag = mesh.new_tags(1);
  std::vector<Mesh::Buffer> received(mesh.size());
  for (const int peer : all_peers(mesh.rank(), mesh.size())) {
    if (parts[peer].empty()) continue;
    received[peer] = Mesh::Buffer(mesh, buffer.at(parts[peer].begin), bytes_of(buffer, parts[peer]));
    received[peer].receive(peer, tag);
  }
  Sender out(mesh, buffer, parts.back().end);
  for (int distance = 1; distance < mesh.size(); ++distance) {
    out.send((mesh.rank() + distance) % mesh.size(), tag, parts[mesh.rank()]);
  }
  for (const int peer : all_peers(mesh.rank(), mesh.size())) {
    if (!parts[peer].empty()) received[peer].wait_received();
  }
  out.wait();
}

void all_to_all(Mesh& mesh, FlatBuffer output, FlatBuffer input, const std::vector<Range>& parts) {
  const uint64_t tag = mesh.new_tags(1);
  const int64_t length = parts[mesh.rank()].size();
  std::vector<Mesh::Buffer> received(mesh.size());
  for (const int peer : all_peers(mesh.rank(), mesh.size())) {
    if (length == 0) break;
    received[peer] = Mesh::Buffer(mesh, output.at(peer * length), bytes_of(output, {0, length}));
    received[peer].receive(peer, tag);
  }
  Sender out(mesh, input, parts.back().end);
  for (int distance = 1; distance < mesh.size(); ++distance) {
    const int peer = (mesh.rank() + distance) % mesh.size();
    out.send(peer, tag, parts[peer]);
  }
  for (const int peer : all_peers(mesh.rank(), mesh.size())) {
    if (length > 0) received[peer].wait_received();
  }
  out.wait();
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
  return tree.parent >= 0 ? std::vector<int>{tree.parent} : sorted(tree.children, size);
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
