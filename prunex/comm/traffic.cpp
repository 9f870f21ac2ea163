#include "prunex/comm/traffic.h"

#include <algorithm>

#include "prunex/comm/range.h"

namespace prunex::comm {

Volume& Volume::operator+=(const Volume& other) {
  payload += other.payload;
  sent += other.sent;
  sent_to_nodes += other.sent_to_nodes;
  least_to_nodes += other.least_to_nodes;
  return *this;
}

Volume operator-(const Volume& a, const Volume& b) {
  return {a.payload - b.payload, a.sent - b.sent, a.sent_to_nodes - b.sent_to_nodes,
          a.least_to_nodes - b.least_to_nodes};
}

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

}  // namespace prunex::comm
