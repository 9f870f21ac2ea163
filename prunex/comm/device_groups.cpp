#include "prunex/comm/device_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "prunex/comm/device_communicator.h"

namespace prunex::comm {

/// Of these ranks, the first two that share a GPU; none if all have their own.
std::vector<int> DeviceGroups::first_pair(const std::vector<int>& ranks) const {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (gpus_.at(ranks[i]) == gpus_.at(ranks[j])) return {ranks[j], ranks[i]};
    }
  }
  return {};
}

std::string DeviceGroups::sharing() const {
  std::vector<int> all(gpus_.size());
  std::iota(all.begin(), all.end(), 0);
  const auto pair = first_pair(all);
  return pair.empty() ? "" : fmt::format("ranks {} and {} share a GPU", pair[0], pair[1]);
}

std::unique_ptr<Communicator> DeviceGroups::extend(std::unique_ptr<Communicator> host, const Group& group,
                                                   const std::shared_ptr<Journal>& journal) const {
  std::unique_ptr<Communicator> device;
  if (group.members.size() > 1 && first_pair(group.members).empty()) {
    device = make_nccl_communicator(group, store_, timeouts_, guard_);
    device->record_in(journal);
  }
  return make_device_communicator(std::move(host), std::move(device));
}

Gpu choose_gpu(const std::vector<std::string>& machines, const Layout& layout) {
  const auto mine = machines.begin() + layout.rank;
  return use_gpu(static_cast<int>(std::count(machines.begin(), mine, *mine)));
}

}  // namespace prunex::comm
