#include "prunex/comm/traffic.h"

#include <algorithm>

namespace prunex::comm {
namespace {

constexpr int64_t kGlooSegmentBytes = 1 << 20;

int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Gloo cuts the buffer in equal segments, a multiple of n and at least 2n of them, none above 1 MiB; a chunk is its
// rank's share of the segments, so the last chunks may be short or empty.
int64_t ring_chunk_bytes(int64_t elements, int64_t element_size, Place place) {
  const int64_t total = elements * element_size;
  const int64_t longest = element_size * std::max<int64_t>(1, kGlooSegmentBytes / element_size);
  const int64_t wanted = std::max<int64_t>(divide_up(total, longest), 2 * place.size);
  const int64_t segments_per_rank = divide_up(wanted, place.size);
  const int64_t segment = divide_up(divide_up(total, segments_per_rank * place.size), element_size) * element_size;
  const int64_t chunk = segments_per_rank * segment;
  return std::clamp<int64_t>(total - place.rank * chunk, 0, chunk);
}

}  // namespace

int64_t all_reduce_sent_bytes(int64_t elements, int64_t element_size, Place place) {
  const Place before = {(place.rank + place.size - 1) % place.size, place.size};
  return 2 * elements * element_size - ring_chunk_bytes(elements, element_size, place) -
         ring_chunk_bytes(elements, element_size, before);
}

int64_t broadcast_sent_bytes(int64_t bytes, int root, Place place) {
  const int v = (place.rank - root + place.size) % place.size;
  int64_t sends = 0;
  for (int step = 1; step < place.size; step *= 2) {
    if (step > v && v + step < place.size) ++sends;
  }
  return sends * bytes;
}

int64_t all_gather_sent_bytes(int64_t input_bytes, Place place) {
  return (place.size - 1) * input_bytes;
}

}  // namespace prunex::comm
