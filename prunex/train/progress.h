// What a run tells the person who waits for it, on standard error.
#pragma once

#include <cstdint>

#include "prunex/train/metrics.h"

namespace prunex::train {

/// One line that redraws itself on a terminal, one line per exchange elsewhere, nothing if quiet.
class Progress {
 public:
  Progress(int64_t exchanges, int64_t dense_bytes_per_exchange, bool quiet);

  void report(const Metrics& metrics, double seconds_so_far, double samples_per_second);
  /// Ends the line that redraws itself.
  void finish();

 private:
  int64_t exchanges_;
  int64_t dense_bytes_;
  bool quiet_;
  bool terminal_;
  double accuracy_ = -1;  // the last one measured
};

}  // namespace prunex::train
