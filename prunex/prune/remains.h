// What a cut leaves of the units of a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/prune/axes.h"
#include "prunex/sparsity/cut.h"

namespace prunex::prune {

/// Built only from a cut that removes whole units which may be removed, everywhere they lie; any other throws
/// c10::Error that names the tensor and why.
class Remains {
 public:
  Remains(const Axes& axes, const sparsity::Cut& cut);

  /// Surviving positions of all labels.
  std::vector<int64_t> kept(const Labels& labels) const;
  /// How many survive of labels[begin, end).
  int64_t count(const Labels& labels, int64_t begin, int64_t end) const;

  /// The extents of a value that are left; its recorded shape if none of its units is removed.
  program::Shape shape(program::ValueId value) const;

  const Axes& axes() const { return axes_; }

 private:
  void remove(const Member& member, const sparsity::TensorCut& cut);
  void check(const Member& member, const sparsity::TensorCut& cut) const;
  bool is_removed(Unit unit) const { return unit != kFixed && removed_[axes_.units().find(unit)]; }

  const Axes& axes_;
  std::vector<bool> removed_;  // by the root of each set
};

}  // namespace prunex::prune
