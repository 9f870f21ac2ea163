#include "report/usual_seconds.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "report/statistics.h"

namespace prunex::report {
namespace {

/// Those that the run's speed is read from.
const std::vector<Exchange>& timed_exchanges(const Run& run) {
  return run.timed.empty() ? run.exchanges : run.timed;
}

/// Of every exchange: since the one before.
std::vector<double> images_of(const std::vector<Exchange>& exchanges) {
  std::vector<double> images;
  int64_t before = 0;
  for (const auto& exchange : exchanges) {
    images.push_back(static_cast<double>(exchange.samples - before));
    before = exchange.samples;
  }
  return images;
}

/// Of exchanges of one size of the network.
struct Timings {
  std::vector<double> local;  ///< of an image
  std::vector<double> work, inter;
};

std::map<int64_t, Timings> timings_by_macs(const std::vector<Exchange>& exchanges) {
  std::map<int64_t, Timings> sizes;
  const auto images = images_of(exchanges);
  for (size_t i = 0; i < exchanges.size(); ++i) {
    if (images[i] <= 0) continue;
    const Seconds& seconds = exchanges[i].seconds;
    auto& [local, work, inter] = sizes[exchanges[i].macs];
    local.push_back(seconds.local / images[i]);
    work.push_back(seconds.intra + seconds.project + seconds.dual);
    inter.push_back(seconds.inter);
  }
  return sizes;
}

/// What a network of one size takes.
struct Speed {
  double per_image = 0;  ///< local steps
  double per_exchange = 0, between_nodes = 0;
};

/// Between timed sizes on a straight line, beyond them as the next one.
class Speeds {
 public:
  explicit Speeds(const std::vector<Exchange>& timed) {
    for (const auto& [macs, all] : timings_by_macs(timed)) {
      by_macs_[macs] = {median(all.local), median(all.work), median(all.inter)};
    }
  }

  bool empty() const { return by_macs_.empty(); }

  Speed at(int64_t macs) const {
    const auto above = by_macs_.lower_bound(macs);
    if (above == by_macs_.end()) return by_macs_.rbegin()->second;
    if (above == by_macs_.begin() || above->first == macs) return above->second;
    const auto below = std::prev(above);
    const double share = static_cast<double>(macs - below->first) / static_cast<double>(above->first - below->first);
    const auto between = [&](double Speed::*of) {
      return below->second.*of + share * (above->second.*of - below->second.*of);
    };
    return {between(&Speed::per_image), between(&Speed::per_exchange), between(&Speed::between_nodes)};
  }

 private:
  std::map<int64_t, Speed> by_macs_;
};

}  // namespace

std::vector<UsualSeconds> usual_seconds_by_exchange(const Run& run) {
  const Speeds speeds(timed_exchanges(run));
  if (speeds.empty()) return {};
  std::vector<UsualSeconds> all;
  const auto images = images_of(run.exchanges);
  for (size_t i = 0; i < images.size(); ++i) {
    const Speed speed = speeds.at(run.exchanges[i].macs);
    all.push_back({speed.per_image * images[i], speed.per_exchange, speed.between_nodes});
  }
  return all;
}

UsualSeconds usual_seconds(const Run& run) {
  UsualSeconds sum;
  const auto all = usual_seconds_by_exchange(run);
  for (const auto& [local, work, inter] : all) {
    sum.local += local;
    sum.work += work;
    sum.inter += inter;
  }
  if (!all.empty() || !run.summary) return sum;
  const Seconds& seconds = run.summary->seconds;
  return {seconds.local, seconds.intra + seconds.project + seconds.dual, seconds.inter};
}

double timing_scatter(const Run& run) {
  std::vector<double> most;
  for (const auto& [macs, timings] : timings_by_macs(timed_exchanges(run))) {
    if (timings.local.size() > most.size()) most = timings.local;
  }
  if (most.size() < 4) return 0;
  std::sort(most.begin(), most.end());
  const double middle = median(most);
  return middle > 0 ? (most[most.size() * 3 / 4] - most[most.size() / 4]) / 2 / middle : 0;
}

}  // namespace prunex::report
