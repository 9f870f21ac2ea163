#include "prunex/comm/traffic.h"

#include "prunex/comm/range.h"

namespace prunex::comm {

int64_t all_reduce_sent_bytes(int64_t elements, int64_t element_size, Place place) {
  const Range whole{0, elements};
  const auto block = [&](int distance) { return part(whole, place.size, (place.rank + distance) % place.size).size(); };
  return (2 * elements - block(1) - block(2)) * element_size;
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
