#include "prunex/train/run/trace.h"

#include <nlohmann/json.hpp>

#include "prunex/stopwatch.h"

namespace prunex::train {
namespace {

using nlohmann::ordered_json;

constexpr double kMicroseconds = 1e6;

ordered_json name_of(const char* what, int node, int rank, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", node}, {"tid", rank}, {"args", {{"name", name}}}};
}

}  // namespace

Trace::Trace(comm::Hierarchy& ranks) : ranks_(ranks) {
  ranks.world->barrier();
  origin_ = Stopwatch::now();
}

Trace::Trace(comm::Hierarchy& ranks, double seconds_before)
    : ranks_(ranks), origin_(Stopwatch::now() - seconds_before) {}

void Trace::add(const strategies::Phase& phase, int64_t k) {
  events_.push_back({phase, k});
}

void Trace::add(const std::vector<strategies::Phase>& phases, int64_t k) {
  for (const auto& phase : phases) add(phase, k);
}

/// This rank's events, one JSON object per line.
std::string Trace::text() const {
  const int node = ranks_.layout.node(), rank = ranks_.layout.rank;
  std::string lines = name_of("process_name", node, rank, "node " + std::to_string(node)).dump() + "\n" +
                      name_of("thread_name", node, rank, "rank " + std::to_string(rank)).dump() + "\n";
  for (const auto& [phase, exchange] : events_) {
    const ordered_json event{{"name", phase.name},
                             {"ph", "X"},
                             {"pid", node},
                             {"tid", rank},
                             {"ts", (phase.begin - origin_) * kMicroseconds},
                             {"dur", phase.seconds * kMicroseconds},
                             {"args", {{"exchange", exchange}, {"bytes", phase.bytes}}}};
    lines += event.dump() + "\n";
  }
  return lines;
}

std::string Trace::gather() const {
  std::string events;
  for (const std::string& lines : comm::gather_texts(*ranks_.world, text())) {
    for (const char c : lines) events += c == '\n' ? ",\n" : std::string(1, c);
  }
  events.resize(events.size() - 2);
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + events + "\n]}\n";
}

}  // namespace prunex::train
