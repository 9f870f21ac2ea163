// metrics.jsonl of a run.
#pragma once

#include <cstdint>
#include <string>

#include "prunex/io/json_lines.h"
#include "prunex/train/metrics.h"

namespace prunex::train {

/// A disk that is full may have room again before the end: till then lines wait, which is said once, and the run goes
/// on.
class MetricsFile {
 public:
  /// Appends to the file that is there.
  explicit MetricsFile(const std::string& path) : lines_(path) {}

  void append(const Metrics& metrics);
  /// Why lines are missing in the file; empty if none is.
  std::string problem();

 private:
  io::JsonLines lines_;
  bool said_ = false;
};

/// Leaves the lines of the exchanges 1 … `last`, for a run that goes on after `last`. That some are missing or damaged
/// is said, and ends no run: the checkpoint has what it goes on from.
void keep_exchanges(const std::string& path, int64_t last);

}  // namespace prunex::train
