#include "prunex/comm/traffic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "prunex/comm/communicator.h"
#include "prunex/comm/layout.h"

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

OperationTraffic& OperationTraffic::operator+=(const OperationTraffic& later) {
  count += later.count;
  payload_bytes += later.payload_bytes;
  sent_bytes += later.sent_bytes;
  seconds.insert(seconds.end(), later.seconds.begin(), later.seconds.end());
  if (seconds.size() > kSamples) seconds.erase(seconds.begin(), seconds.end() - kSamples);
  return *this;
}

Traffic& Traffic::operator+=(const Traffic& later) {
  operations += later.operations;
  bytes += later.bytes;
  seconds += later.seconds;
  for (const auto& [name, counts] : later.by_operation) by_operation[name] += counts;
  return *this;
}

InterfaceBytes& InterfaceBytes::operator+=(const InterfaceBytes& other) {
  sent += other.sent;
  received += other.received;
  return *this;
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

Tree binomial_tree(int root, Place place) {
  const int v = (place.rank - root + place.size) % place.size;
  Tree tree;
  for (int step = 1; step < place.size; step *= 2) {
    if (v >= step && v < 2 * step) tree.parent = (v - step + root) % place.size;
    if (v < step && v + step < place.size) tree.children.push_back((v + step + root) % place.size);
  }
  return tree;
}

// A line reads "  eth0: bytes packets errors drops fifo frames compressed multicast bytes …": received, then sent.
InterfaceBytes read_interface(const std::string& name, const std::string& table) {
  constexpr size_t kReceived = 0, kSent = 8;
  const auto device = name.substr(0, name.find(':'));  // eth0:1 is a second address of eth0
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find_first_not_of(' '), colon = line.find(':');
    if (colon == std::string::npos || line.substr(begin, colon - begin) != device) continue;
    std::istringstream fields(line.substr(colon + 1));
    const std::vector<int64_t> counts{std::istream_iterator<int64_t>(fields), {}};
    if (counts.size() > kSent) return {.sent = counts[kSent], .received = counts[kReceived]};
  }
  throw std::runtime_error(fmt::format("[comm] {}: no counters of the interface {}", table, name));
}

InterfaceCounters::InterfaceCounters(std::vector<std::string> names, std::string table)
    : names_(std::move(names)), table_(std::move(table)) {
  for (const auto& name : names_) begin_.push_back(read_interface(name, table_));
}

NodeInterfaceBytes InterfaceCounters::gather(const Layout& layout, Communicator& world) const {
  std::string own;
  for (size_t i = 0; layout.local_rank() == 0 && i < names_.size(); ++i) {
    const auto now = read_interface(names_[i], table_);
    own += fmt::format("{} {} {}\n", names_[i], now.sent - begin_[i].sent, now.received - begin_[i].received);
  }
  NodeInterfaceBytes bytes;
  const auto texts = gather_texts(world, own);
  for (int node = 0; node < layout.nodes(); ++node) {
    std::istringstream lines(texts.at(static_cast<size_t>(layout.first_rank(node))));
    std::string name;
    for (InterfaceBytes of_node; lines >> name >> of_node.sent >> of_node.received;) {
      auto& nodes = bytes[name];
      nodes.resize(static_cast<size_t>(layout.nodes()));
      nodes[static_cast<size_t>(node)] += of_node;
    }
  }
  return bytes;
}

}  // namespace prunex::comm
