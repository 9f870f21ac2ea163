#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "report/json_fields.h"
#include "report/run.h"
#include "report/statistics.h"

namespace prunex::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Those of an exchange that were measured, under their names in the record, in its order.
void each_measured(Exchange& exchange, const std::function<void(const char*, double&)>& use) {
  use("loss", exchange.loss);
  use("keep", exchange.keep);
  for (const auto& [name, of] : kSeconds) use(name, exchange.seconds.*of);
  for (const auto& [name, of] : kResiduals) use(name, exchange.residuals.*of);
}

double rounded(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

ordered_json column(std::vector<ordered_json> values) {
  const bool constant = std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values.front(); });
  return constant ? values.front() : ordered_json(std::move(values));
}

const json& at(const json& column, size_t i) {
  return column.is_array() ? column.at(i) : column;
}

/// What a network of one size takes.
struct Speed {
  double per_image = 0;  ///< local steps
  double per_exchange = 0, between_nodes = 0;
};

/// Of exchanges of one size.
struct Timings {
  std::vector<double> local, work, inter;
};

/// Between timed sizes on a straight line, beyond them as the next one.
class Speeds {
 public:
  explicit Speeds(const std::vector<Exchange>& timed) {
    std::map<int64_t, Timings> sizes;
    int64_t before = 0;
    for (const auto& exchange : timed) {
      const int64_t images = exchange.samples - before;
      before = exchange.samples;
      if (images <= 0) continue;
      auto& [local, work, inter] = sizes[exchange.macs];
      local.push_back(exchange.seconds.local / static_cast<double>(images));
      work.push_back(exchange.seconds.intra + exchange.seconds.project + exchange.seconds.dual);
      inter.push_back(exchange.seconds.inter);
    }
    for (auto& [macs, all] : sizes) by_macs_[macs] = {median(all.local), median(all.work), median(all.inter)};
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

ordered_json record_of(const std::vector<Exchange>& exchanges) {
  ordered_json record{{"count", exchanges.size()}};
  if (exchanges.empty()) return record;
  const auto add = [&](const char* name, const std::function<ordered_json(const Exchange&)>& value) {
    std::vector<ordered_json> values;
    for (const auto& exchange : exchanges) values.push_back(value(exchange));
    record[name] = column(std::move(values));
  };
  for (const auto& [name, of] : kCounted) add(name, [of = of](const Exchange& e) -> ordered_json { return e.*of; });
  std::vector<std::pair<const char*, std::vector<ordered_json>>> measured;
  for (Exchange exchange : exchanges) {
    size_t i = 0;
    each_measured(exchange, [&](const char* name, double value) {
      if (i == measured.size()) measured.push_back({name, {}});
      measured[i++].second.push_back(rounded(value));
    });
  }
  for (auto& [name, values] : measured) record[name] = column(std::move(values));
  add("frozen", [](const Exchange& e) -> ordered_json { return e.frozen ? 1 : 0; });
  add("accuracy", [](const Exchange& e) { return e.accuracy ? ordered_json(*e.accuracy) : ordered_json(); });
  return record;
}

std::vector<Exchange> exchanges_of(const json& record) {
  const int64_t count = whole_number(record.at("count"));
  if (count < 0 || static_cast<size_t>(count) > kMostExchanges) {
    throw std::invalid_argument(fmt::format("count: got {}, wanted 0 to {}", count, kMostExchanges));
  }
  if (count > 1) {  // no two are alike
    const json& steps = record.at("step");
    if (!steps.is_array() || steps.size() != static_cast<size_t>(count)) {
      throw std::invalid_argument(fmt::format("step: wanted {} numbers, as `count` says", count));
    }
  }
  std::vector<Exchange> exchanges(static_cast<size_t>(count));
  for (size_t i = 0; i < exchanges.size(); ++i) {
    Exchange& exchange = exchanges[i];
    for (const auto& [name, of] : kCounted) exchange.*of = whole_number(at(record.at(name), i));
    each_measured(exchange, [&](const char* name, double& value) { value = at(record.at(name), i).get<double>(); });
    exchange.frozen = at(record.at("frozen"), i) == 1;
    if (const auto& accuracy = at(record.at("accuracy"), i); !accuracy.is_null()) exchange.accuracy = accuracy;
  }
  return exchanges;
}

std::vector<UsualSeconds> usual_seconds_by_exchange(const Run& run) {
  const Speeds speeds(run.timed.empty() ? run.exchanges : run.timed);
  if (speeds.empty()) return {};
  std::vector<UsualSeconds> all;
  int64_t before = 0;
  for (const auto& exchange : run.exchanges) {
    const Speed speed = speeds.at(exchange.macs);
    all.push_back(
        {speed.per_image * static_cast<double>(exchange.samples - before), speed.per_exchange, speed.between_nodes});
    before = exchange.samples;
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
  std::map<int64_t, std::vector<double>> sizes;
  int64_t before = 0;
  for (const auto& exchange : run.timed.empty() ? run.exchanges : run.timed) {
    const int64_t images = exchange.samples - before;
    before = exchange.samples;
    if (images > 0) sizes[exchange.macs].push_back(exchange.seconds.local / static_cast<double>(images));
  }
  std::vector<double> most;
  for (const auto& [macs, values] : sizes) {
    if (values.size() > most.size()) most = values;
  }
  if (most.size() < 4) return 0;
  std::sort(most.begin(), most.end());
  const double middle = median(most);
  return middle > 0 ? (most[most.size() * 3 / 4] - most[most.size() / 4]) / 2 / middle : 0;
}

}  // namespace prunex::report
