// How long local steps take on each rank, and when a slow one exchanges those that it has made.
#pragma once

#include <cstdint>

#include "prunex/comm/hierarchy.h"
#include "prunex/stopwatch.h"

namespace prunex::train {

/// The local steps of one rank between two exchanges. With a factor they have a deadline: so many times as long as they
/// took the median rank before the last exchange (of an even number of ranks the faster one of the two in the middle).
class Pace {
 public:
  /// `factor`: at least 1; 0: no deadline.
  explicit Pace(double factor) : factor_(factor) {}

  bool has_deadline() const { return factor_ > 0; }

  /// `steps`: until the next exchange. `now`, here and below: Stopwatch::now().
  void begin(int64_t steps, double now = Stopwatch::now());
  void made_step(double now = Stopwatch::now());
  /// Steps since begin().
  int64_t made() const { return made_; }
  /// Whether one more step, as long as those before, would end after the deadline. Never before the first one, nor
  /// before an exchange has told how long the others take.
  bool is_late(double now = Stopwatch::now()) const;

  /// The steps of all ranks since begin(), together. With a factor they tell each other, which is collective, and
  /// `ranks.share` becomes what this node has made of the mean node's steps (Hierarchy::share); without, all of
  /// `contributors` ranks have made all steps.
  int64_t agree(comm::Hierarchy& ranks, int contributors);

 private:
  double factor_;
  double begin_ = 0, last_ = 0;  // of the steps: their begin, the end of the last one
  int64_t steps_ = 0, made_ = 0;
  double usual_ = 0;  // seconds of the median rank's step; 0: nobody knows yet
};

}  // namespace prunex::train
