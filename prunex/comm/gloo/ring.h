// A ring all-reduce in chunks: while one chunk is on the wire, others are added up.
#pragma once

#include <cstdint>
#include <functional>

#include "prunex/comm/gloo/mesh.h"
#include "prunex/comm/range.h"

namespace prunex::comm {

/// What goes over the wire at once. 128 KiB to 1 MiB are level; a chunk above half a block ends the overlap.
inline constexpr int64_t kChunkBytes = 256 << 10;

/// What a rank does with a piece of the buffer. Pieces are at most kChunkBytes long.
struct RingHooks {
  /// piece <- this rank's values, plus the received ones unless null.
  std::function<void(Range piece, const void* received)> combine;
  /// The piece holds the result.
  std::function<void(Range piece)> publish = [](Range) {};
  /// The first block is on its way: time for work that later blocks need.
  std::function<void()> first_block_sent = [] {};
};

/// A flat buffer of any type.
struct FlatBuffer {
  void* data = nullptr;
  int64_t element_size = 1;

  void* at(int64_t entry) const { return static_cast<char*>(data) + entry * element_size; }
};

/// The part of `range` that is block b of n, and its pieces; hooks see them in this order on every rank r: blocks r,
/// r-1, … r-n+1 are combined, blocks r+1, r, … r-n+2 published.
int64_t ring_chunks(Range range, int64_t ranks, int64_t element_size);
Range ring_piece(Range range, int64_t ranks, int64_t chunks, int64_t block, int64_t chunk);

/// Runs the hooks for `range` of the buffer, in blocks of `chunks` pieces, the same on all ranks. Every rank sends 2S -
/// |block r+1| - |block r+2| bytes (all together 2(n-1)S, the least possible). Each block is added up in the same order
/// of ranks everywhere and then copied: results are bit-identical.
void ring_all_reduce(Mesh& mesh, FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks);

}  // namespace prunex::comm
