// metrics.jsonl of a run.
#pragma once

#include <string>

#include "prunex/io/atomic_file.h"
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

}  // namespace prunex::train
