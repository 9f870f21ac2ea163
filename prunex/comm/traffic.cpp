#include "prunex/comm/traffic.h"

#include <algorithm>

#include "prunex/comm/range.h"

namespace prunex::comm {

void OperationTraffic::add(int64_t payload, int64_t sent, double took) {
  if (seconds.size() < kSamples) {
    seconds.push_back(static_cast<float>(took));
  } else {
    seconds[static_cast<size_t>(count) % kSamples] = static_cast<float>(took);
  }
  ++count;
  payload_bytes += payload;
  sent_bytes += sent;
}

double OperationTraffic::quantile(double q) const {
  if (seconds.empty()) return 0;
  auto sorted = seconds;
  const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(sorted.size() - 1) + 0.5);
  std::nth_element(sorted.begin(), place, sorted.end());
  return *place;
}

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
