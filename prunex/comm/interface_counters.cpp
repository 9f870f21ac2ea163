#include "prunex/comm/interface_counters.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace prunex::comm {

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
  if (names_.empty()) return {};
  const auto interfaces = static_cast<int64_t>(names_.size());
  at::Tensor counts = at::zeros({interfaces, layout.nodes(), 2}, at::kLong);
  for (int64_t i = 0; layout.local_rank() == 0 && i < interfaces; ++i) {
    const auto now = read_interface(names_[i], table_);
    counts[i][layout.node()][0] = now.sent - begin_[i].sent;
    counts[i][layout.node()][1] = now.received - begin_[i].received;
  }
  world.all_reduce(counts);
  NodeInterfaceBytes bytes;
  const int64_t* count = counts.const_data_ptr<int64_t>();
  for (const auto& name : names_) {
    for (int node = 0; node < layout.nodes(); ++node, count += 2) bytes[name].push_back({count[0], count[1]});
  }
  return bytes;
}

}  // namespace prunex::comm
