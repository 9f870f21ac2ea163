#include "plan/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <stdexcept>
#include <vector>

#include "report/json_fields.h"

namespace prunex::plan {
namespace {

using nlohmann::json;

struct Timing {
  double bytes = 0, steps = 0, seconds = 0;
};

double steps_of_ring(double bytes, double node_bytes) {
  const double ratio = node_bytes / bytes;  // 2 (n - 1) / n
  if (!(ratio > 0 && ratio < 2)) {
    throw std::invalid_argument(
        fmt::format("node_bytes: got {} of {}, wanted those of two nodes or more", node_bytes, bytes));
  }
  const double n = std::max(2.0, std::round(2 / (2 - ratio)));
  return 2 * (n - 1);
}

std::vector<Timing> timings_of(const json& list, const std::string& form) {
  std::vector<Timing> timings;
  report::each(list, [&](const json& entry) {
    if (report::required<std::string>(entry, "form") != form) return;
    const auto bytes = report::required<double>(entry, "bytes"), sent = report::required<double>(entry, "node_bytes");
    const auto seconds = report::required<double>(entry, "seconds");
    if (!(seconds > 0)) throw std::invalid_argument(fmt::format("seconds: got {}, wanted more than 0", seconds));
    timings.push_back({sent, steps_of_ring(bytes, sent), seconds});
  });
  return timings;
}

/// Sums of products of x and y, each over its seconds.
double product(const std::vector<Timing>& timings, double Timing::*x, double Timing::*y) {
  double sum = 0;
  for (const auto& timing : timings) sum += timing.*x * timing.*y / (timing.seconds * timing.seconds);
  return sum;
}

MeasuredNetwork fit(const std::vector<Timing>& timings) {
  const double bb = product(timings, &Timing::bytes, &Timing::bytes),
               bs = product(timings, &Timing::bytes, &Timing::steps);
  const double ss = product(timings, &Timing::steps, &Timing::steps);
  const double bt = product(timings, &Timing::bytes, &Timing::seconds),
               st = product(timings, &Timing::steps, &Timing::seconds);
  const double determinant = bb * ss - bs * bs;
  double latency = determinant > 1e-9 * bb * ss ? std::max(0.0, (bb * st - bs * bt) / determinant) : 0;
  const double per_byte = (bt - bs * latency) / bb;
  if (!(per_byte > 0)) throw std::invalid_argument("its seconds do not grow with the bytes");
  double squares = 0;
  for (const auto& timing : timings) {
    squares += std::pow((per_byte * timing.bytes + latency * timing.steps) / timing.seconds - 1, 2);
  }
  return {8 / per_byte / 1e6, latency * 1e3, std::sqrt(squares / static_cast<double>(timings.size()))};
}

MeasuredNetwork read(const std::string& path) {
  auto file = report::open_bounded(path);
  const json list = report::read_json(file);
  if (!list.is_array()) throw std::invalid_argument("wanted an array, as `prunex bench all_reduce --json` writes it");
  for (const char* form : {"sharded", "leader", "flat"}) {
    const auto timings = timings_of(list, form);
    if (timings.empty()) continue;
    const auto size = [](const Timing& timing) { return timing.bytes; };
    const auto [least, most] = std::ranges::minmax(timings, {}, size);
    if (most.bytes > least.bytes) return fit(timings);
  }
  throw std::invalid_argument("wanted all-reduces of two sizes or more in one form");
}

}  // namespace

MeasuredNetwork read_network(const std::string& path) {
  return report::within("`network`: " + path, [&] { return read(path); });
}

GpuRate read_gpu_rate(const std::string& path, const std::string& model, const std::string& precision) {
  return report::within("`gpu_kit`: " + path, [&] {
    static const std::regex kLine(R"(((\w+)(?: at \d+, (\w+))?): prunex ([0-9.]+) samples/s.*)");
    auto file = report::open_bounded(path);
    GpuRate first;
    for (std::string line; std::getline(file, line);) {
      std::smatch parts;
      if (line.size() > 1000 || !std::regex_match(line, parts, kLine) || parts[2] != model) continue;
      const GpuRate rate{parts[1], std::strtod(parts[4].str().c_str(), nullptr)};
      if (rate.images > 0 && parts[3] == precision) return rate;
      if (first.images == 0) first = rate;
    }
    if (first.images > 0) return first;
    throw std::invalid_argument(
        fmt::format("no line '{}: prunex N samples/s', as gpu-kit/results/3-speed.txt has", model));
  });
}

}  // namespace prunex::plan
