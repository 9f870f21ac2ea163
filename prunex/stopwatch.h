// Seconds of a clock that never jumps.
#pragma once

#include <chrono>

namespace prunex {

class Stopwatch {
 public:
  /// Since an arbitrary moment, the same for all of a process.
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// Since the last call, or since it was made.
  double lap() {
    const double last = last_;
    last_ = now();
    return last_ - last;
  }

 private:
  double last_ = now();
};

}  // namespace prunex
