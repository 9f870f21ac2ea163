// Runs as a report has read them, for tests of plans.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "prunex/comm/cost_model.h"
#include "report/run.h"
#include "report/tasks.h"

namespace prunex::tests {

/// Four exchanges of 10 steps of 2 x 1 ranks with 8 images each, which take 2 s before and 1 s after the second: 8 MB
/// are summed up in each, or in each step; 0.5, 0.6, 0.7 and 0.8 right at their ends. 1.5 million parameters and half a
/// million statistics.
inline report::Run recorded_run(const std::string& strategy, bool sends_gradients = false, double reduced = 8e6) {
  report::Run run;
  run.directory = "runs/" + strategy;
  run.options = {{"strategy", strategy}, {"model", "net"},      {"nodes", "2"},      {"ranks-per-node", "1"},
                 {"payload", "fp32"},    {"local-steps", "10"}, {"batch-size", "8"}, {"epochs", "2"}};
  const int sends = sends_gradients ? 10 : 1;
  const auto bytes =
      static_cast<int64_t>(std::llround(sends * comm::node_bytes(comm::Form::kSharded, reduced, {2, 1})));
  for (int k = 1; k <= 4; ++k) {
    report::Exchange exchange{.index = k, .step = 10 * k, .samples = 160 * k};
    exchange.accuracy = 0.4 + 0.1 * k;
    exchange.macs = k <= 2 ? 1000 : 500;
    exchange.seconds = {.local = k <= 2 ? 20.0 : 10.0, .intra = 0.5, .inter = 99};
    exchange.inter_node_bytes = bytes;
    run.exchanges.push_back(exchange);
  }
  run.summary = report::Summary{.sends_gradients = sends_gradients, .exchanges = 4, .steps = 40, .samples = 640};
  run.summary->accuracy = 0.8;
  run.summary->parameters_dense = 1'500'000;
  run.summary->inter_node_bytes = 4 * bytes;
  run.summary->inter_node_bytes_dense = 4 * 8'000'000;
  run.summary->messages = {.between_nodes = 4 * sends, .direct = 0, .gathered_bytes = 0};
  return run;
}

inline report::Variant variant_of(const std::vector<report::Run>& runs, const std::string& name = "run") {
  report::Variant variant{.name = name};
  for (const auto& run : runs) variant.runs.push_back(&run);
  return variant;
}

}  // namespace prunex::tests
