#include "report/bandwidth.h"

#include <algorithm>
#include <cmath>

namespace prunex::report {
namespace {

constexpr double kLatency = 1e-4;  // seconds of a message between nodes: docs/communication.md, "Cost"
constexpr double kBytesPerMbit = 1e6 / 8;

double wire_seconds(const Cost& cost, double mbit) {
  return cost.bytes / (mbit * kBytesPerMbit) + cost.messages * kLatency;
}

/// The bandwidth at which an overlapping run changes from waiting for the link to waiting for the processor.
std::vector<double> bends(const Cost& cost) {
  const double room = cost.local - cost.messages * kLatency;
  if (!cost.overlaps || room <= 0) return {};
  return {cost.bytes / room / kBytesPerMbit};
}

/// Between two bends times are c + w / mbit, so the difference is one, too.
std::optional<double> crossing_within(const Cost& a, const Cost& b, Interval mbit) {
  const double at_low = seconds_at(a, mbit.low) - seconds_at(b, mbit.low);
  const double at_high = seconds_at(a, mbit.high) - seconds_at(b, mbit.high);
  if (at_low == at_high || (at_low > 0) == (at_high > 0)) return std::nullopt;
  const double w = (at_low - at_high) / (1 / mbit.low - 1 / mbit.high);
  const double c = at_low - w / mbit.low;
  return -w / c;
}

}  // namespace

Cost cost_of(const Run& run) {
  const auto& summary = *run.summary;
  const UsualSeconds usual = usual_seconds(run);
  const auto [messages, flat] = summary.messages;
  const auto between = static_cast<double>(messages + flat > 0 ? messages : summary.exchanges);
  return {.local = usual.local,
          .exchange = usual.work,
          .bytes = static_cast<double>(summary.inter_node_bytes),
          .messages = 2 * (between * static_cast<double>(run.nodes() - 1) +
                           static_cast<double>(flat) * static_cast<double>(run.ranks() - 1)),
          .overlaps = summary.overlaps_backward};
}

std::optional<Cost> cost_of(const Variant& variant) {
  const auto runs = variant.finished();
  Cost mean;
  for (const Run* run : runs) {
    const Cost cost = cost_of(*run);
    const auto n = static_cast<double>(runs.size());
    mean.local += cost.local / n;
    mean.exchange += cost.exchange / n;
    mean.bytes += cost.bytes / n;
    mean.messages += cost.messages / n;
    mean.overlaps = cost.overlaps;
  }
  if (mean.bytes == 0) return std::nullopt;
  return mean;
}

double seconds_at(const Cost& cost, double mbit) {
  const double wire = wire_seconds(cost, mbit);
  return cost.exchange + (cost.overlaps ? std::max(cost.local, wire) : cost.local + wire);
}

std::vector<double> crossings(const Cost& a, const Cost& b, Interval mbit) {
  std::vector<double> edges{mbit.low, mbit.high};
  for (const Cost* cost : {&a, &b}) {
    for (const double bend : bends(*cost)) {
      if (bend > mbit.low && bend < mbit.high) edges.push_back(bend);
    }
  }
  std::sort(edges.begin(), edges.end());
  std::vector<double> found;
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    if (const auto crossing = crossing_within(a, b, {edges[i], edges[i + 1]})) found.push_back(*crossing);
  }
  return found;
}

std::vector<double> usual_bandwidths() {
  return {25, 50, 100, 200, 400, 1000, 2500, 10000, 25000, 100000};
}

}  // namespace prunex::report
