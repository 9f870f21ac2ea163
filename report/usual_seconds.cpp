#include <algorithm>
#include <map>
#include <vector>

#include "report/run.h"

namespace prunex::report {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What a network of one size takes.
struct Speed {
  double per_image = 0;  ///< local steps
  double per_exchange = 0;
};

/// Between timed sizes on a straight line, beyond them as the next one.
class Speeds {
 public:
  explicit Speeds(const std::vector<Exchange>& timed) {
    std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> sizes;
    int64_t before = 0;
    for (const auto& exchange : timed) {
      const int64_t images = exchange.samples - before;
      before = exchange.samples;
      if (images <= 0) continue;
      auto& [local, work] = sizes[exchange.macs];
      local.push_back(exchange.seconds.local / static_cast<double>(images));
      work.push_back(exchange.seconds.intra + exchange.seconds.project + exchange.seconds.dual);
    }
    for (auto& [macs, values] : sizes) by_macs_[macs] = {median(values.first), median(values.second)};
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
    return {between(&Speed::per_image), between(&Speed::per_exchange)};
  }

 private:
  std::map<int64_t, Speed> by_macs_;
};

}  // namespace

UsualSeconds usual_seconds(const Run& run) {
  const Speeds speeds(run.timed.empty() ? run.exchanges : run.timed);
  if (speeds.empty() || run.exchanges.empty()) {
    if (!run.summary) return {};
    const Seconds& all = run.summary->seconds;
    return {all.local, all.intra + all.project + all.dual};
  }
  UsualSeconds sum;
  int64_t before = 0;
  for (const auto& exchange : run.exchanges) {
    const Speed speed = speeds.at(exchange.macs);
    sum.local += speed.per_image * static_cast<double>(exchange.samples - before);
    sum.work += speed.per_exchange;
    before = exchange.samples;
  }
  return sum;
}

}  // namespace prunex::report
