// Whole runs of a few steps, with all ranks in this process, and what they leave.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/train/trainer.h"
#include "tests/json_lines.h"

namespace prunex::train {

inline constexpr char kConfig[] = "lr=0.1\nseed=0\n";

/// Two steps of 8 images per rank between exchanges.
inline TrainOptions tiny_run(int64_t samples, int64_t exchanges) {
  TrainOptions options;
  options.model = "resnet8";
  options.data.samples = samples;
  options.exchanges = exchanges;
  options.local_steps = 2;
  options.batch_size = 8;
  options.eval_every = 0;
  options.precision = Precision::kFp32;
  options.quiet = true;
  return options;
}

/// 6 exchanges of 2 steps on two nodes; the masks freeze, and the network is cut, at the fourth.
inline TrainOptions two_node_run(const std::string& run_dir) {
  TrainOptions options = tiny_run(160, 6);
  options.nodes = 2;
  options.run_dir = run_dir;
  return options;
}

/// Rank 0's.
inline Summary run_to_end(const TrainOptions& options) {
  Summary of_rank_0;
  comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) {
    const Summary summary = train(options, ranks, kConfig);
    if (ranks.layout.rank == 0) of_rank_0 = summary;
  });
  return of_rank_0;
}

/// metrics.jsonl.
inline std::vector<nlohmann::json> lines_of(const std::string& directory) {
  return tests::json_lines(directory + "/metrics.jsonl");
}

/// What two runs of the same numbers have in common.
inline std::vector<nlohmann::json> lines_without_seconds(const std::string& directory) {
  auto lines = lines_of(directory);
  for (auto& line : lines) line.erase("seconds");
  return lines;
}

}  // namespace prunex::train
