// Channel units: disjoint sets that record why a unit cannot be removed.
#pragma once

#include <cstdint>
#include <vector>

namespace prunex::prune {

/// One position of a channel axis. Positions that must live and die together are one set.
using Unit = int32_t;
inline constexpr Unit kFixed = -1;    ///< a position that can never be removed
inline constexpr int32_t kFree = -1;  ///< no reason against removal

/// Union by size with path halving: near-linear in the number of units and ties.
class Units {
 public:
  /// `count` new units, each a set of its own; returns the first.
  Unit add(int64_t count);
  Unit find(Unit unit) const;
  /// The sets of both become one; kFixed freezes the other for `reason`.
  void unite(Unit a, Unit b, int32_t reason);
  /// The set of `unit` cannot be removed; the smallest reason of a set counts.
  void freeze(Unit unit, int32_t reason);
  /// Of the set of `unit`; kFree: it may be removed.
  int32_t reason(Unit unit) const { return reasons_[find(unit)]; }
  int64_t size() const { return static_cast<int64_t>(parents_.size()); }

 private:
  mutable std::vector<Unit> parents_;
  std::vector<int32_t> sizes_;
  std::vector<int32_t> reasons_;
};

}  // namespace prunex::prune
