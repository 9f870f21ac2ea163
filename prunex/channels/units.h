// Positions of channel axes, and which of them live and die together.
#pragma once

#include <cstdint>
#include <vector>

namespace prunex::channels {

/// One position of a channel axis. Positions that must live and die together are one set.
using Unit = int32_t;
inline constexpr Unit kFixed = -1;    ///< a position that can never be removed
inline constexpr int32_t kFree = -1;  ///< no reason against removal

/// Of a set of units.
enum class Mark : uint8_t {
  kHead = 1,    ///< a head of attention
  kSummed = 2,  ///< something other than a weight adds up over it
  kJoined = 4,  ///< values meet in it otherwise than as factors: residual streams
};

/// Union by size: a find takes at most the logarithm of the number of units in steps.
class Units {
 public:
  /// `count` new units, each a set of its own; returns the first.
  Unit add(int64_t count);
  Unit find(Unit unit) const;
  /// The sets of both become one; kFixed freezes the other for `reason`.
  void unite(Unit a, Unit b, int32_t reason);
  /// The set of `unit` cannot be removed; the smallest reason of a set counts.
  void freeze(Unit unit, int32_t reason);
  /// Removing the set of `unit` changes statistics of others; the smallest reason counts.
  void blur(Unit unit, int32_t reason);
  void mark(Unit unit, Mark mark);
  /// Of the set of `unit`; kFree: it may be removed.
  int32_t reason(Unit unit) const { return sets_[find(unit)].frozen; }
  /// Of the set of `unit`; kFree: others stay exactly as they were.
  int32_t blur(Unit unit) const { return sets_[find(unit)].blurred; }
  bool has(Unit unit, Mark mark) const { return (sets_[find(unit)].marks & static_cast<uint8_t>(mark)) != 0; }
  int64_t size() const { return static_cast<int64_t>(parents_.size()); }

 private:
  struct Set {
    int32_t size = 1;
    int32_t frozen = kFree;
    int32_t blurred = kFree;
    uint8_t marks = 0;  // Mark
  };

  std::vector<Unit> parents_;
  std::vector<Set> sets_;  // by root
};

}  // namespace prunex::channels
