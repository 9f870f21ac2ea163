// Notes when the phases of an exchange ended.
#pragma once

#include <utility>
#include <vector>

#include "prunex/stopwatch.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// A phase begins where the one before it ended.
class PhaseClock {
 public:
  void restart() {
    phases_.clear();
    last_ = Stopwatch::now();
  }
  void end(const char* name, size_t bytes = 0) {
    const double begin = std::exchange(last_, Stopwatch::now());
    phases_.push_back({name, begin, last_ - begin, static_cast<int64_t>(bytes)});
  }
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  double last_ = Stopwatch::now();
  std::vector<Phase> phases_;
};

}  // namespace prunex::strategies
