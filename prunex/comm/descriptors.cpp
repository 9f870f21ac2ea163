#include "prunex/comm/descriptors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <stdexcept>

namespace prunex::comm {
namespace {

constexpr int kSpare = 24;  // data sets, run directory, devices, strangers

int64_t open_now() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : std::distance(begin(files), end(files));
}

}  // namespace

// A connection to every member of world, node, rail, site and cross, and of the heartbeat; while a group connects, as
// many again.
int descriptors_of_rank(const Layout& layout) {
  const int world = layout.world_size();
  const int largest_node = *std::max_element(layout.node_sizes.begin(), layout.node_sizes.end());
  return 3 * world + largest_node + 2 * layout.nodes() + kSpare;
}

void reserve_descriptors(int more) {
  rlimit limit = {};
  const auto wanted = static_cast<rlim_t>(open_now() + more);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t permitted = limit.rlim_max;
  limit.rlim_cur = std::min(wanted, permitted);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (permitted >= wanted) return;
  throw std::runtime_error(fmt::format(
      "[comm] open files: ulimit -n permits {}, wanted {} for the connections between ranks", permitted, wanted));
}

}  // namespace prunex::comm
