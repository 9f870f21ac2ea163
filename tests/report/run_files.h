// Run directories for tests of the report, written as `prunex train` writes them.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>

#include "tests/texts.h"

namespace prunex::tests {

/// Two nodes with one rank each, four exchanges of 100 images; the last is evaluated.
struct RunFiles {
  std::map<std::string, std::string> options{{"strategy", "\"hsadmm\""},
                                             {"model", "\"resnet8\""},
                                             {"dataset", "\"synthetic\""},
                                             {"nodes", "2"},
                                             {"ranks-per-node", "1"},
                                             {"batch-size", "10"},
                                             {"keep", "0.5"},
                                             {"seed", "0"}};
  double accuracy = 0.9;
  double local_seconds = 2;         // of an exchange
  long inter_node_bytes = 1000000;  // of an exchange
  bool finished = true;
  std::string partition;  // or others of summary.json: members, each with a comma behind it
};

inline std::string seconds_json(double local, double times) {
  return fmt::format(R"({{"local":{},"intra":{},"project":{},"inter":{},"dual":{},"evaluate":{},"total":{}}})",
                     times * local, times * 0.1, times * 0.2, times * 0.3, times * 0.4, times * 5, times * (local + 6));
}

inline void write_run(const std::string& directory, const RunFiles& run) {
  std::string config, metrics;
  for (const auto& [key, value] : run.options) config += key + "=" + value + "\n";
  for (int k = 1; k <= 4; ++k) {
    metrics += fmt::format(
        R"({{"exchange":{0},"samples":{1},"step":{2},"loss":{3},{4}"keep":0.5,"mask_changes":{5},"frozen":{6},)"
        R"("parameters":100,"macs":1000,"residuals":{{"r_intra":{3},"s_intra":{3},"r_inter":{3},"s_inter":{3}}},)"
        R"("seconds":{7},"inter_node_bytes":{8},"inter_node_bytes_bound":{8},"intra_node_bytes":0}})"
        "\n",
        k, 100 * k, 5 * k, 1.0 / k, k == 4 ? fmt::format("\"accuracy\":{},", run.accuracy) : "", 4 - k,
        k > 2 ? "true" : "false", seconds_json(run.local_seconds, 1), run.inter_node_bytes);
  }
  write_text(directory + "/config.toml", config);
  write_text(directory + "/metrics.jsonl", metrics);
  if (!run.finished) return;
  write_text(directory + "/summary.json",
             fmt::format(R"({{"version":"0.1.0","strategy":"hsadmm","model":"resnet8","dataset":"synthetic",{})"
                         R"("exchanges":4,"steps":20,"samples":400,"accuracy":{},"loss":0.3,"parameters_dense":200,)"
                         R"("parameters_compact":100,"macs_dense":2000,"macs_compact":1000,"inter_node_bytes":{},)"
                         R"("inter_node_bytes_bound":{},"inter_node_bytes_ddp":{},"inter_node_bytes_ddp_flat":{},)"
                         R"("wall_seconds":40,"seconds":{}}})",
                         run.partition, run.accuracy, 4 * run.inter_node_bytes, 4 * run.inter_node_bytes,
                         400 * run.inter_node_bytes, 600 * run.inter_node_bytes, seconds_json(run.local_seconds, 4)));
}

}  // namespace prunex::tests
